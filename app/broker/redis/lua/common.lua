-- Common part of the broker's scripts: their keys, and the changes of a job. A script touches only keys of KEYS.
--
-- key                              type    content                                        lifetime
-- {abs}:jobs                       hash    each job's record, packed                      open; then RESULT_TTL_MS
-- {abs}:bodies                     hash    signed bodies                                  until the job ends
-- {abs}:results                    hash    signed results                                 as the job
-- {abs}:keys                       hash    SHA-256 of a job's key -> its id               open; then the key's TTL
-- {abs}:pools                      hash    numbers of open jobs of concurrency groups     until they are 0
-- {abs}:finished                   zset    finished jobs, by time of expiry               as the job
-- {abs}:evictable                  zset    those without subscribers, in order of         as the job
--                                          completion
-- {abs}:garbage                    set     forgotten jobs whose events are to be deleted  until collected
-- {abs}:queues                     set     names of queues                                for ever
-- {abs}:counters                   hash    place (positions in queues and in the order    for ever
--                                          of completion), bytes (of finished jobs), last
--                                          (the job that ended last), clock_jump (ms that
--                                          the clock has jumped ahead)
-- {abs}:queue:<queue>              hash    weights of waiting, outside and running jobs;  for ever
--                                          batch_.. of batch jobs; pace, its
--                                          throughput; clock_jump, at the last claim
-- {abs}:queue:<queue>:waiting      zset    waiting jobs, in order                         for ever
-- {abs}:queue:<queue>:outside      hash    a job -> the job whose end it waits for        until that ends
-- {abs}:queue:<queue>:leases       stream  running jobs: the pending messages of the      for ever
--                                          group `workers` are their leases
-- {abs}:events:<id>, :droppable    stream, its events; ids and sizes of droppable ones    as the job
--                                  list
-- {abs}:workers:<queue>            hash    a worker -> end of its heartbeat, reason       until it ends
-- {abs}:seen                       zset    changes that were made in the last minute       for ever
-- {abs}:secret                     string  a fingerprint of the secret in use             2 min after the last worker
-- {abs}:arrivals                   channel queues with new jobs
-- {abs}:news:<process>             channel jobs that changed
--
-- A job is in exactly one place: `outside`, `waiting`, `leases` or, once it is over, `finished`. Its record:
--   queue, key, owner, digest, kind, priority, weight, detached, key_ttl_s, after, pools, deadline_in_s: as submitted
--   submitted, ends         times of submission and deadline
--   state, place, queued    outside, waiting, running, done or cancelled; position in its queue, and when it entered
--   attempt, fence, message, verdict, paced
--                number of deliveries; number of leases; its message in the stream; empty, or why the leased job is not
--                to be run; whether it counts for the pace
--   cancel       whether it is cancelled; a running one continues until its worker is notified
--   subscribers, processes, followers    callers; processes to notify of changes; queues of jobs that wait for it
--   last, bytes, durable, droppable      last event; bytes of all events; number of durable and bytes of droppable ones
-- Times are in ms of a clock that does not jump: the server's without its jumps, which claim.lua finds.

local JOBS, BODIES, RESULTS, BY_KEY, POOLS, FINISHED, EVICTABLE, GARBAGE, QUEUES, COUNTERS, SEEN = unpack(KEYS, 1, 11)
local QUEUE, WAITING, OUTSIDE, LEASES = unpack(KEYS, 12, 15)
local GROUP = 'workers'
local BATCH_PLACE = 2 ^ 51

local function number(text) return tonumber(text or '0') or 0 end
local function integer(value) return value == 0 and '0' or string.format('%.0f', value) end -- Redis 7.0 has no number -0

local function now_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000) - number(redis.call('HGET', COUNTERS, 'clock_jump'))
end

local function load(id)
  local packed = redis.call('HGET', JOBS, id)
  return packed and cmsgpack.unpack(packed)
end

local function save(id, job) redis.call('HSET', JOBS, id, cmsgpack.pack(job)) end
local function is_over(job) return job.state == 'done' or job.state == 'cancelled' end

-- Whether a change with this token is new: a caller that received no reply repeats it.
local function first_time(token)
  redis.call('ZREMRANGEBYSCORE', SEEN, '-inf', integer(now_ms() - 60000))
  return redis.call('ZADD', SEEN, 'NX', integer(now_ms()), token) == 1
end

local function notify(id, job)
  for process in pairs(job.processes) do redis.call('PUBLISH', '{abs}:news:' .. process, id) end
end

-- Throughput of a queue: the work taken while other work waited, and the time in which jobs waited while others ran.
-- Both decay exponentially; see app/broker/throughput.py. Called before each change of the waiting or running jobs.
local function pace()
  local packed, now, waits = redis.call('HGET', QUEUE, 'pace'), now_ms(), redis.call('EXISTS', WAITING) == 1
  local rate = packed and cmsgpack.unpack(packed) or {at = now, work = 0, ms = 0, credit = 0, run_ms = 0, run_work = 0}
  local since = math.max(0, now - rate.at)
  local moves = waits and since <= 1000 * IDLE_MEMORY_S and redis.call('XLEN', LEASES) > 0 -- longer: the clock changed
  local decay = math.exp(-since / (moves and 1000 * MEMORY_S or 1000 * IDLE_MEMORY_S))
  rate.at, rate.work, rate.credit = now, rate.work * decay, rate.credit * decay
  rate.ms = rate.ms * decay + (moves and (1 - decay) * 1000 * MEMORY_S or 0)
  return rate, waits
end

local function save_pace(rate) redis.call('HSET', QUEUE, 'pace', cmsgpack.pack(rate)) end
local function work_of(job) return job.weight + 1 end

-- The work of the running jobs of the queue.
local function running_work()
  return math.max(0, number(redis.call('HGET', QUEUE, 'running_weight'))) + redis.call('XLEN', LEASES)
end

local function next_place() return redis.call('HINCRBY', COUNTERS, 'place', 1) end

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
  local rate, waits = pace()
  local running = running_work()
  if not waits and rate.work < running then rate.credit = math.max(rate.credit, running) end
  save_pace(rate)
  job.queued = now_ms()
  wait(id, job)
end

-- Removes a job from the place where it waits or runs.
local function leave(id, job)
  save_pace((pace()))
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

-- Enqueues the jobs whose other job is over. Its end only notifies: a script touches one queue, and this one may differ.
local function release()
  local over, pairs_of_ids = {}, redis.call('HGETALL', OUTSIDE)
  for index = 1, #pairs_of_ids, 2 do
    local id, after = pairs_of_ids[index], pairs_of_ids[index + 1]
    if over[after] == nil then
      local first = load(after)
      over[after] = not first or is_over(first)
    end
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
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', FINISHED, '-inf', integer(now_ms()), 'LIMIT', 0, 100)) do
    forget(id)
  end
  local field = redis.call('HMGET', COUNTERS, 'bytes', 'last')
  if number(field[1]) <= RESULT_BYTES_MAX then return end
  for _, id in ipairs(redis.call('ZRANGE', EVICTABLE, 0, 199)) do
    if id ~= field[2] then forget(id) end
    if number(redis.call('HGET', COUNTERS, 'bytes')) <= RESULT_BYTES_MAX then return end
  end
end

-- Ends a job. `result` is nil if it was cancelled; `cacheable` says whether the job's key may lead to this result.
local function finish(id, job, result, cacheable)
  leave(id, job)
  job.state = result and 'done' or 'cancelled'
  redis.call('HDEL', BODIES, id)
  if result then redis.call('HSET', RESULTS, id, result) end
  local key_ttl = result and cacheable and 1000 * job.key_ttl_s or 0
  job.key_ends = now_ms() + key_ttl
  if key_ttl == 0 then forget_key(id, job) end
  notify(id, job)
  for queue in pairs(job.followers) do redis.call('PUBLISH', '{abs}:arrivals', queue) end
  for _, pool in ipairs(job.pools) do
    if redis.call('HINCRBY', POOLS, pool.name, -1) <= 0 then redis.call('HDEL', POOLS, pool.name) end
  end
  job.ended, job.size = next_place(), JOB_BYTES + job.bytes + (result and #result or 0)
  redis.call('ZADD', FINISHED, integer(now_ms() + math.max(RESULT_TTL_MS, key_ttl)), id)
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
  save(id, job)
end

-- Adds a process to those that are notified of changes of an open job.
local function subscribe(id, job, process)
  if is_over(job) or job.processes[process] then return end
  job.processes[process] = true
  save(id, job)
end
