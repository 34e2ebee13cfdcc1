-- Common part of the broker's scripts: the changes of a job. README.md describes keys, records and scripts.

local JOBS, BODIES, RESULTS, BY_KEY, POOLS, FINISHED, EVICTABLE, GARBAGE, QUEUES, COUNTERS, SEEN = unpack(KEYS, 1, 11)
local SECRET, QUEUE, WAITING, OUTSIDE, WORKERS, LEASES = unpack(KEYS, 12, 17)
local GROUP = 'workers'
local BATCH_PLACE = 2 ^ 51

local function number(text) return tonumber(text or '0') or 0 end
-- A number as text. Redis 7.0 has no number -0.
local function integer(value) return value == 0 and '0' or string.format('%.0f', value) end

-- A clock that was set back is found here, before a job can seem too old. One that was set ahead is found by claim.lua.
local time, jump, last = redis.call('TIME'), unpack(redis.call('HMGET', COUNTERS, 'clock_jump', 'clock'))
local clock = time[1] * 1000 + math.floor(time[2] / 1000)
if clock < number(last) - LEASE_MS / 2 then jump = redis.call('HINCRBY', COUNTERS, 'clock_jump', integer(clock - last)) end
if math.abs(clock - number(last)) > LEASE_MS / 4 then redis.call('HSET', COUNTERS, 'clock', integer(clock)) end
local now = clock - number(jump)

local function load(id)
  local packed = redis.call('HGET', JOBS, id)
  return packed and cmsgpack.unpack(packed)
end

local function save(id, job) redis.call('HSET', JOBS, id, cmsgpack.pack(job)) end
local function is_over(job) return not job or job.state == 'done' or job.state == 'cancelled' end -- or forgotten

-- Whether a change with this token is new: a caller that received no reply repeats it.
local function first_time(token)
  redis.call('ZREMRANGEBYSCORE', SEEN, '-inf', integer(now - 60000))
  return redis.call('ZADD', SEEN, 'NX', integer(now), token) == 1
end

local function notify(subject, job)
  for process in pairs(job.processes) do redis.call('PUBLISH', '{abs}:news:' .. process, subject) end
end

-- Throughput of the queue: the work taken while other work waited, and the time in which jobs waited while others ran.
-- Both decay exponentially; see app/broker/throughput.py. Read before the first change of the waiting or running jobs.
local rate
local function pace()
  if rate then return rate end
  local packed = redis.call('HGET', QUEUE, 'pace')
  rate = packed and cmsgpack.unpack(packed) or {at = now, work = 0, ms = 0, credit = 0, run_ms = 0, run_work = 0}
  local since = math.max(0, now - rate.at)
  local moves = redis.call('EXISTS', WAITING) == 1 and redis.call('XLEN', LEASES) > 0
    and since <= 1000 * IDLE_MEMORY_S -- longer: the clock changed
  local decay = math.exp(-since / (moves and 1000 * MEMORY_S or 1000 * IDLE_MEMORY_S))
  rate.at, rate.work, rate.credit = now, rate.work * decay, rate.credit * decay
  rate.ms = rate.ms * decay + (moves and (1 - decay) * 1000 * MEMORY_S or 0)
  return rate
end

local function save_pace() redis.call('HSET', QUEUE, 'pace', cmsgpack.pack(pace())) end
local function work_of(job) return job.weight + 1 end

local function weight_of(state) return number(redis.call('HGET', QUEUE, state .. '_weight')) end
local function running_work() return weight_of('running') + redis.call('XLEN', LEASES) end

-- Adds a job's weight to the sum of its state, or subtracts it.
local function weigh(job, sign)
  for _, prefix in ipairs(job.priority == 'batch' and {'', 'batch_'} or {''}) do
    redis.call('HINCRBY', QUEUE, prefix .. job.state .. '_weight', integer(sign * job.weight))
  end
end

-- Adds a job to the waiting jobs, at the place of its submission.
local function wait(id, job)
  job.state = 'waiting'
  weigh(job, 1)
  redis.call('ZADD', WAITING, integer(job.place), id)
  redis.call('PUBLISH', '{abs}:arrivals', job.queue)
end

-- Adds a job that enters its queue.
local function enqueue(id, job)
  local first, running = redis.call('EXISTS', WAITING) == 0, running_work()
  if first and pace().work < running then pace().credit = math.max(pace().credit, running) end
  save_pace()
  job.queued = now
  wait(id, job)
end

-- Removes a job from the place where it waits or runs.
local function leave(id, job)
  save_pace()
  weigh(job, -1)
  if job.state == 'waiting' then
    redis.call('ZREM', WAITING, id)
  elseif job.state == 'outside' then
    redis.call('HDEL', OUTSIDE, id)
  else
    redis.call('XACK', LEASES, GROUP, job.message)
    redis.call('XDEL', LEASES, job.message)
  end
end

-- Enqueues the jobs whose other job is over. Its end only notifies, because a script touches only one queue.
local function release()
  local over, pairs_of_ids = {}, redis.call('HGETALL', OUTSIDE)
  for index = 1, #pairs_of_ids, 2 do
    local id, after = pairs_of_ids[index], pairs_of_ids[index + 1]
    if over[after] == nil then over[after] = is_over(load(after)) end -- many wait for one
    if over[after] then
      local job = load(id)
      leave(id, job)
      enqueue(id, job)
      save(id, job)
    end
  end
end

local function forget_key(id, job)
  if redis.call('HGET', BY_KEY, job.key) == id then redis.call('HDEL', BY_KEY, job.key) end
end

local function forget(id)
  local job = load(id)
  redis.call('ZREM', FINISHED, id)
  redis.call('ZREM', EVICTABLE, id)
  if not job then return end
  forget_key(id, job)
  redis.call('HDEL', JOBS, id)
  redis.call('HDEL', RESULTS, id)
  redis.call('HINCRBY', COUNTERS, 'bytes', integer(-job.size))
  if job.last then redis.call('SADD', GARBAGE, id) end
end

-- Deletes expired jobs; then the oldest finished jobs without subscribers, until the others fit. The latest one stays
-- whatever its size, because a notified process has yet to read it.
local function forget_old()
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', FINISHED, '-inf', integer(now), 'LIMIT', 0, 100)) do forget(id) end
  local function is_full() return number(redis.call('HGET', COUNTERS, 'bytes')) > RESULT_BYTES_MAX end
  local last = redis.call('HGET', COUNTERS, 'last')
  for _, id in ipairs(is_full() and redis.call('ZRANGE', EVICTABLE, 0, 199) or {}) do
    if id ~= last and is_full() then forget(id) end
  end
end

-- Ends a job. `result` is nil if it was cancelled; `cacheable` says whether the job's key may lead to this result.
local function finish(id, job, result, cacheable)
  leave(id, job)
  job.state = result and 'done' or 'cancelled'
  redis.call('HDEL', BODIES, id)
  if result then redis.call('HSET', RESULTS, id, result) end
  local key_ttl = result and cacheable and 1000 * job.key_ttl_s or 0
  job.key_ends = now + key_ttl
  if key_ttl == 0 then forget_key(id, job) end
  notify(result and #result <= PUSHED_RESULT_MAX and table.concat({id, integer(job.fence), result}, ' ') or id, job)
  for queue in pairs(job.followers) do redis.call('PUBLISH', '{abs}:arrivals', queue) end
  for _, pool in ipairs(job.pools) do
    if redis.call('HINCRBY', POOLS, pool.name, -1) <= 0 then redis.call('HDEL', POOLS, pool.name) end
  end
  job.ended, job.size = redis.call('HINCRBY', COUNTERS, 'place', 1), JOB_BYTES + job.bytes + (result and #result or 0)
  redis.call('ZADD', FINISHED, integer(now + math.max(RESULT_TTL_MS, key_ttl)), id)
  if job.subscribers <= 0 then redis.call('ZADD', EVICTABLE, integer(job.ended), id) end
  redis.call('HINCRBY', COUNTERS, 'bytes', integer(job.size))
  redis.call('HSET', COUNTERS, 'last', id)
  save(id, job)
  forget_old()
end

-- Cancels a job for all subscribers. A running one continues until its worker is notified.
local function cancel(id, job)
  if is_over(job) then return end
  job.cancel = true
  forget_key(id, job) -- the next equal request gets a new job
  if job.state ~= 'running' then return finish(id, job, nil) end
  notify(id, job)
  redis.call('PUBLISH', '{abs}:news:' .. job.worker, id)
  save(id, job)
end

-- Adds a process to those that are notified of changes of an open job.
local function subscribe(id, job, process)
  if is_over(job) or job.processes[process] then return end
  job.processes[process] = true
  save(id, job)
end
