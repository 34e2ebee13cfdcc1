-- KEYS: .., token, pools.. ARGV: id body options (JSON)
-- -> 'new' id | 'known' id | 'reused' '' | 'full' limit retry_ms total_ms: time until there may be room, and time of
--   all waiting and running jobs; the limit is 'slow' if the job would end too late within its deadline
local id, body, options = ARGV[1], ARGV[2], cjson.decode(ARGV[3])
local POOL_MS = 3600000 -- longer than any job of a pool
local weight, within = options.weight, options.within

if redis.call('HEXISTS', JOBS, id) == 1 then return {'new', id} end -- repeated, because the reply was lost
forget_old(options.bytes_max)
release()
local existing = redis.call('HGET', BY_KEY, options.key)
local known = existing and load(existing)
if known and is_over(known) and known.key_ends <= now_ms() then known = nil end
if known then
  if known.digest ~= options.digest then return {'reused', ''} end
  if first_time(KEYS[13]) then
    if options.detached then known.detached = true else known.subscribers = known.subscribers + 1 end
    known.key_ttl = math.max(known.key_ttl, options.key_ttl)
    if known.subscribers > 0 then redis.call('ZREM', EVICTABLE, existing) end
    save(existing, known)
  end
  return {'known', existing}
end

local first = options.after ~= '' and load(options.after)
if first and is_over(first) then first = nil end
local taken, pace_ms, credit = pace()
local pace_work = math.max(taken + credit / 2, credit)
local sums = redis.call('HMGET', QUEUE, 'weight', 'outside_weight', 'batch_weight', 'batch_outside_weight', 'outside')
local waiting, outside = redis.call('ZCARD', WAITING), number(sums[5])
local sum, running = number(sums[1]) + number(sums[2]), running_work()

-- The time for this work in ms; nil if unknown.
local function duration_ms(work)
  if pace_work > 0 and pace_ms >= PACE_KNOWN_MS then return work * pace_ms / pace_work end
end

local function rejected(limit, room, all)
  return {'full', limit, integer(room or -1), integer(all or duration_ms(sum + waiting + outside + running) or 0)}
end

local average_work = (sum + waiting + outside) / math.max(1, waiting + outside) -- average of the waiting jobs
if waiting + outside >= options.jobs_max then return rejected('queue_jobs_max', duration_ms(average_work)) end
local excess = sum + weight - options.weight_max
if weight > 0 and sum > 0 and excess > 0 then return rejected('queue_weight_max', duration_ms(excess)) end

-- The jobs before this one. Jobs that wait for others count only if this one does too, because they may start late. The
-- job is admitted if at most as many jobs are before it as are running.
local batch = options.priority == 'batch'
local jobs = batch and waiting or redis.call('ZCOUNT', WAITING, '-inf', '(' .. integer(BATCH_PLACE))
local before = jobs + number(sums[1]) - (batch and 0 or number(sums[3]))
if first then
  jobs = jobs + outside
  before = before + outside + number(sums[2]) - (batch and 0 or number(sums[4]))
end
local waits = jobs > redis.call('XLEN', LEASES) and within >= 0
local ends = waits and duration_ms(before + running + work_of(weight))
if ends and ends > PACE_SHARE * within then return rejected('slow', ends - PACE_SHARE * within, ends) end

for index, pool in ipairs(options.pools) do
  local key = KEYS[13 + index]
  for _, other in ipairs(redis.call('SMEMBERS', key)) do
    local job = load(other)
    if not job or is_over(job) then redis.call('SREM', key, other) end
  end
  if redis.call('SCARD', key) >= pool.cap then return rejected(pool.limit, duration_ms(average_work)) end
end
for index = 1, #options.pools do
  redis.call('SADD', KEYS[13 + index], id)
  redis.call('PEXPIRE', KEYS[13 + index], POOL_MS)
end

local job = {
  queue = options.queue, key = options.key, owner = options.owner, digest = options.digest, kind = options.kind,
  priority = options.priority, weight = weight, detached = options.detached, key_ttl = options.key_ttl,
  submitted = now_ms(), ends = within >= 0 and options.kind ~= '' and now_ms() + within or nil,
  state = 'outside', place = next_place() + (batch and BATCH_PLACE or 0), attempt = 0, fence = 0, processes = {},
  subscribers = options.detached and 0 or 1, bytes = 0, durable = 0, droppable = 0,
}
redis.call('HSET', BY_KEY, options.key, id)
redis.call('HSET', BODIES, id, body)
if first then
  job.after, first.followed = options.after, true
  save(options.after, first)
  local packed = redis.call('HGET', OUTSIDE, options.after)
  local followers = packed and cmsgpack.unpack(packed) or {}
  followers[id] = true
  redis.call('HSET', OUTSIDE, options.after, cmsgpack.pack(followers))
  weigh('outside_weight', job.priority, weight)
  redis.call('HINCRBY', QUEUE, 'outside', 1)
else
  enqueue(id, job)
end
save(id, job)
return {'new', id}
