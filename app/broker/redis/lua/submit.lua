-- id token queue key body owner digest kind priority weight after detached remember_ms ticket jobs_max weight_max
--   result_bytes_max within_ms (pool cap limit)...
-- -> 'new' id | 'known' id | 'reused' '' | 'full' limit retry_ms total_ms: time until there may be room, and time of
--   all waiting and running jobs; the limit is 'slow' if the job would end too late within within_ms (-1: no deadline)
local id, token, queue, key, body, owner, digest, kind, priority = unpack(ARGV, 1, 9)
local weight, after, detached, key_ttl, ticket = unpack(ARGV, 10, 14)
local POOL_MS = 3600000 -- longer than any job of a pool
local jobs_max, weight_max, within = number(ARGV[15]), number(ARGV[16]), number(ARGV[18])

if redis.call('EXISTS', job_key(id)) == 1 then return {'new', id} end -- repeated, because the reply was lost
forget_old(number(ARGV[17]))
local existing = redis.call('GET', 'abs:key:' .. key)
local existing_digest = existing and redis.call('HGET', job_key(existing), 'digest')
if existing_digest then
  if existing_digest ~= digest then return {'reused', ''} end
  if first_time(token) then
    if detached == '1' then
      redis.call('HSET', job_key(existing), 'detached', '1')
    else
      redis.call('HINCRBY', job_key(existing), 'shares', 1)
    end
    local longest = math.max(number(redis.call('HGET', job_key(existing), 'remember')), number(key_ttl))
    redis.call('HSET', job_key(existing), 'remember', integer(longest))
    if is_over(redis.call('HGET', job_key(existing), 'state')) then set_ttl(existing, nil) end
  end
  return {'known', existing}
end

local base = queue_key(queue)
local first = after ~= '' and redis.call('HGET', job_key(after), 'state')
if first and is_over(first) then first = false end
local taken, pace_ms, credit = pace(queue)
local pace_work = math.max(taken + credit / 2, credit)
local waiting, outside = redis.call('ZCARD', base .. ':waiting'), redis.call('SCARD', base .. ':outside')
local sums = redis.call('HMGET', base, 'weight', 'outside_weight', 'batch_weight', 'batch_outside_weight')
local sum, running = number(sums[1]) + number(sums[2]), running_work(queue)

-- The time for this work in ms; nil if unknown.
local function duration_ms(work)
  if pace_work > 0 and pace_ms >= PACE_KNOWN_MS then return work * pace_ms / pace_work end
end

local function rejected(limit, room, all)
  return {'full', limit, integer(room or -1), integer(all or duration_ms(sum + waiting + outside + running) or 0)}
end

local average_work = (sum + waiting + outside) / math.max(1, waiting + outside) -- average of the waiting jobs
if waiting + outside >= jobs_max then return rejected('queue_jobs_max', duration_ms(average_work)) end
local excess = sum + number(weight) - weight_max
if number(weight) > 0 and sum > 0 and excess > 0 then return rejected('queue_weight_max', duration_ms(excess)) end

-- The jobs before this one. Jobs that wait for others count only if this one does too, because they may start late. The
-- job is admitted if at most as many jobs are before it as are running.
local interactive = redis.call('ZCOUNT', base .. ':waiting', '-inf', '(' .. integer(BATCH_PLACE))
local jobs = priority == 'batch' and waiting or interactive
local before = jobs + number(sums[1]) - (priority == 'batch' and 0 or number(sums[3]))
if first then
  jobs = jobs + outside
  before = before + outside + number(sums[2]) - (priority == 'batch' and 0 or number(sums[4]))
end
local waits = jobs > redis.call('ZCARD', base .. ':running') and within >= 0
local ends = waits and duration_ms(before + running + work_of(weight))
if ends and ends > PACE_SHARE * within then return rejected('slow', ends - PACE_SHARE * within, ends) end

local pools = {}
for index = 19, #ARGV, 3 do
  local pool = 'abs:pool:' .. ARGV[index]
  for _, other in ipairs(redis.call('SMEMBERS', pool)) do
    local state = redis.call('HGET', job_key(other), 'state')
    if not state or is_over(state) then redis.call('SREM', pool, other) end
  end
  if redis.call('SCARD', pool) >= number(ARGV[index + 1]) then
    return rejected(ARGV[index + 2], duration_ms(average_work))
  end
  table.insert(pools, pool)
end
for _, pool in ipairs(pools) do
  redis.call('SADD', pool, id)
  redis.call('PEXPIRE', pool, POOL_MS)
end

redis.call('SET', 'abs:key:' .. key, id)
redis.call('HSET', job_key(id), 'queue', queue, 'key', key, 'body', body, 'owner', owner, 'digest', digest,
  'kind', kind, 'priority', priority, 'weight', weight, 'detached', detached, 'remember', key_ttl, 'ticket', ticket,
  'submitted', integer(now_ms()), 'ends', within >= 0 and kind ~= '' and integer(now_ms() + within) or '',
  'state', 'outside', 'attempt', '0', 'fence', '0', 'bytes', '0', 'shares', detached == '1' and '0' or '1')
if first then
  redis.call('SADD', job_key(after) .. ':followers', id)
  redis.call('SADD', base .. ':outside', id)
  weigh(queue, 'outside_weight', priority, weight)
else
  enqueue(id)
end
return {'new', id}
