-- id token queue key body owner digest kind priority weight after detached remember_ms ticket jobs_max weight_max
--   result_bytes_max within_ms (pool cap limit)...
-- -> 'new' id | 'known' id | 'reused' '' | 'full' limit room_ms whole_ms: when there may be room, and how long all that
--   waits and runs takes; 'slow' is the limit where too much of within_ms would pass to the job's end (-1: it may)
local id, token, queue, key, body, owner, digest, kind, priority = unpack(ARGV, 1, 9)
local weight, after, detached, remember, ticket = unpack(ARGV, 10, 14)
local POOL_MS = 3600000 -- longer than any job that is in one
local jobs_max, weight_max, within = number(ARGV[15]), number(ARGV[16]), number(ARGV[18])

if redis.call('EXISTS', job_key(id)) == 1 then return {'new', id} end -- asked again by one who saw no reply
forget_old(number(ARGV[17]))
local known = redis.call('GET', 'abs:key:' .. key)
local digest_known = known and redis.call('HGET', job_key(known), 'digest')
if digest_known then
  if digest_known ~= digest then return {'reused', ''} end
  if first_time(token) then
    if detached == '1' then
      redis.call('HSET', job_key(known), 'detached', '1')
    else
      redis.call('HINCRBY', job_key(known), 'shares', 1)
    end
    local longer = math.max(number(redis.call('HGET', job_key(known), 'remember')), number(remember))
    redis.call('HSET', job_key(known), 'remember', whole(longer))
    if is_over(redis.call('HGET', job_key(known), 'state')) then set_ttl(known, nil) end
  end
  return {'known', known}
end

local base = queue_key(queue)
local first = after ~= '' and redis.call('HGET', job_key(after), 'state')
if first and is_over(first) then first = false end
local taken, pace_ms, credit = pace(queue)
local pace_work = math.max(taken + credit / 2, credit)
local waiting, outside = redis.call('ZCARD', base .. ':waiting'), redis.call('SCARD', base .. ':outside')
local sums = redis.call('HMGET', base, 'weight', 'outside_weight', 'batch_weight', 'batch_outside_weight')
local sum, running = number(sums[1]) + number(sums[2]), running_work(queue)

-- How long so much work takes, in ms; nil where that is not known.
local function lasts(work)
  if pace_work > 0 and pace_ms >= PACE_KNOWN_MS then return work * pace_ms / pace_work end
end

local function full(limit, room, all)
  return {'full', limit, whole(room or -1), whole(all or lasts(sum + waiting + outside + running) or 0)}
end

local usual = (sum + waiting + outside) / math.max(1, waiting + outside) -- the work of a job, as those are that wait
if waiting + outside >= jobs_max then return full('queue_jobs_max', lasts(usual)) end
local excess = sum + number(weight) - weight_max
if number(weight) > 0 and sum > 0 and excess > 0 then return full('queue_weight_max', lasts(excess)) end

-- What goes before the job: of what waits outside only what is as it is, for the others may be long in coming. Where
-- no more jobs go before it than run, it is let in.
local jobs = priority == 'batch' and waiting or redis.call('ZCOUNT', base .. ':waiting', '-inf', '(' .. whole(BATCH_PLACE))
local before = jobs + number(sums[1]) - (priority == 'batch' and 0 or number(sums[3]))
if first then
  jobs = jobs + outside
  before = before + outside + number(sums[2]) - (priority == 'batch' and 0 or number(sums[4]))
end
local ends = jobs > redis.call('ZCARD', base .. ':running') and within >= 0 and lasts(before + running + work_of(weight))
if ends and ends > PACE_SHARE * within then return full('slow', ends - PACE_SHARE * within, ends) end

local pools = {}
for place = 19, #ARGV, 3 do
  local pool = 'abs:pool:' .. ARGV[place]
  for _, other in ipairs(redis.call('SMEMBERS', pool)) do
    local state = redis.call('HGET', job_key(other), 'state')
    if not state or is_over(state) then redis.call('SREM', pool, other) end
  end
  if redis.call('SCARD', pool) >= number(ARGV[place + 1]) then return full(ARGV[place + 2], lasts(usual)) end
  table.insert(pools, pool)
end
for _, pool in ipairs(pools) do
  redis.call('SADD', pool, id)
  redis.call('PEXPIRE', pool, POOL_MS)
end

redis.call('SET', 'abs:key:' .. key, id)
redis.call('HSET', job_key(id), 'queue', queue, 'key', key, 'body', body, 'owner', owner, 'digest', digest,
  'kind', kind, 'priority', priority, 'weight', weight, 'detached', detached, 'remember', remember, 'ticket', ticket,
  'submitted', whole(now_ms()), 'ends', within >= 0 and kind ~= '' and whole(now_ms() + within) or '',
  'state', 'outside', 'attempt', '0', 'fence', '0', 'bytes', '0', 'shares', detached == '1' and '0' or '1')
if first then
  redis.call('SADD', job_key(after) .. ':followers', id)
  redis.call('SADD', base .. ':outside', id)
  weigh(queue, 'outside_weight', priority, weight)
else
  enqueue(id)
end
return {'new', id}
