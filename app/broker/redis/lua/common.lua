-- Common part of the broker's scripts: their keys, and the changes of a job. A script touches only keys of KEYS.
--
-- key                              type    content                                        lifetime
-- {abs}:jobs                       hash    each job's record, packed                      open; then result_ttl_s
-- {abs}:bodies                     hash    signed bodies                                  until the job ends
-- {abs}:results                    hash    signed results                                 as the job
-- {abs}:keys                       hash    SHA-256 of a job's key -> its id               open; then the key's TTL
-- {abs}:finished                   zset    finished jobs, by time of expiry               as the job
-- {abs}:evictable                  zset    those without subscribers, in order of         as the job
--                                          completion
-- {abs}:counters                   hash    place (positions in queues and in the order    for ever
--                                          of completion), bytes (of finished jobs), last
--                                          (the job that ended last)
-- {abs}:garbage                    set     forgotten jobs whose events are to be deleted  until collected
-- {abs}:queue:<queue>              hash    sums of weights of waiting, outside and        for ever
--                                          running jobs; batch_.. of batch jobs only;
--                                          outside, their number; pace_.., its throughput;
--                                          clock_jump, ms that the clock has jumped ahead
-- {abs}:queue:<queue>:waiting      zset    waiting jobs, in order                         for ever
-- {abs}:queue:<queue>:outside      hash    a job -> the jobs that wait for its end        until it ends
-- {abs}:queue:<queue>:leases       stream  running jobs: the pending messages of the      for ever
--                                          group `workers` are their leases
-- {abs}:pool:<name>                set     jobs of a concurrency group                    an hour
-- {abs}:events:<id>, :droppable    stream, its events; ids and sizes of droppable ones    as the job
--                                  list
-- {abs}:workers:<queue>, :reasons  zset..  workers by end of their heartbeat, reasons     until their heartbeat ends
-- {abs}:seen:<token>               string  a change that was made                         a minute
-- {abs}:secret                     string  a fingerprint of the secret in use             two minutes after the last
--                                                                                         worker
-- {abs}:arrivals, {abs}:news:<process>  channels
--
-- A job is in exactly one place: `outside`, `waiting`, `leases` or, once it is over, `finished`. Its record:
--   queue, key, owner, digest, kind, priority, weight, detached, key_ttl, submitted, ends: as submitted, in ms
--   state        outside, waiting, running, done or cancelled
--   place, queued        position and time at which it entered its queue
--   attempt, fence, message, verdict, paced
--                number of deliveries; number of leases; its message in the stream; empty, or why the leased job is not
--                to be run; whether it counts for the pace
--   cancel       whether it is cancelled; a running one continues until its worker is notified
--   subscribers, processes        number of callers; processes to notify of changes
--   last, bytes, durable, droppable        last event; bytes of all events; number of durable and bytes of droppable ones

local JOBS, BODIES, RESULTS, BY_KEY, FINISHED, EVICTABLE, COUNTERS, GARBAGE = unpack(KEYS, 1, 8)
local QUEUE, WAITING, OUTSIDE, LEASES = unpack(KEYS, 9, 12)
local GROUP = 'workers'
local BATCH_PLACE = 2 ^ 51
local JOB_BYTES = 4096

local function now_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function number(text) return tonumber(text or '0') or 0 end
local function integer(value) return value == 0 and '0' or string.format('%.0f', value) end -- Redis 7.0 has no number -0
local function decimal(value) return string.format('%.6f', value) end

local function load(id)
  local packed = redis.call('HGET', JOBS, id)
  return packed and cmsgpack.unpack(packed)
end

local function save(id, job) redis.call('HSET', JOBS, id, cmsgpack.pack(job)) end
local function is_over(job) return job.state == 'done' or job.state == 'cancelled' end

-- Whether a change with this token is new: a caller that received no reply repeats it.
local function first_time(key) return redis.call('SET', key, '1', 'NX', 'EX', '60') and true or false end

local function notify(id, job)
  for process in pairs(job.processes) do redis.call('PUBLISH', '{abs}:news:' .. process, id) end
end

-- Caps scores at now + `ms`. Higher ones exist if the clock was set back.
local function cap_scores(zset, ms)
  local latest = integer(now_ms() + ms)
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', zset, '(' .. latest, '+inf')) do
    redis.call('ZADD', zset, latest, member)
  end
end

-- Restarts leases: all, or only those with an idle time of 0, which all older ones have after the clock was set back.
local function restart_leases(all)
  -- rows of message, consumer, idle time, deliveries
  local pending = redis.pcall('XPENDING', LEASES, GROUP, '-', '+', 10000)
  for _, entry in ipairs(pending.err and {} or pending) do
    if all or entry[3] == 0 then redis.call('XCLAIM', LEASES, GROUP, entry[2], '0', entry[1], 'JUSTID') end
  end
end

-- Throughput of a queue: the work taken while other work waited, and the time in which jobs waited while others ran.
-- Both decay exponentially; see app/broker/throughput.py. Called before each change of the waiting or running jobs.
local function pace()
  local now = now_ms()
  local field = redis.call('HMGET', QUEUE, 'pace_at', 'pace_work', 'pace_ms', 'pace_credit')
  local since = field[1] and math.max(0, now - number(field[1])) or 0
  local waits = redis.call('EXISTS', WAITING) == 1
  local stepped = since > PACE_IDLE_MEMORY_MS -- rather a clock change than an idle queue: unknown
  local moves = waits and not stepped and redis.call('XLEN', LEASES) > 0
  local decay = math.exp(-since / (moves and PACE_MEMORY_MS or PACE_IDLE_MEMORY_MS))
  local work, ms, credit = number(field[2]) * decay, number(field[3]) * decay, number(field[4]) * decay
  if moves then ms = ms + (1 - decay) * PACE_MEMORY_MS end
  redis.call('HSET', QUEUE, 'pace_at', integer(now), 'pace_work', decimal(work), 'pace_ms', decimal(ms),
    'pace_credit', decimal(credit))
  return work, ms, credit, waits
end

local function work_of(weight) return weight + 1 end

-- Changes a sum of weights of the queue.
local function weigh(what, priority, change)
  redis.call('HINCRBY', QUEUE, what, integer(change))
  if priority == 'batch' then redis.call('HINCRBY', QUEUE, 'batch_' .. what, integer(change)) end
end

-- The work of the running jobs of the queue.
local function running_work()
  return math.max(0, number(redis.call('HGET', QUEUE, 'running_weight'))) + redis.call('XLEN', LEASES)
end

local function next_place() return redis.call('HINCRBY', COUNTERS, 'place', 1) end

-- Adds a job to the waiting jobs, at the place of its submission.
local function enqueue(id, job)
  local taken, _, credit, waits = pace()
  local running = running_work()
  if not waits and taken < running then
    redis.call('HSET', QUEUE, 'pace_credit', decimal(math.max(credit, running)))
  end
  job.state, job.queued = 'waiting', now_ms()
  redis.call('ZADD', WAITING, integer(job.place), id)
  weigh('weight', job.priority, job.weight)
  redis.call('PUBLISH', '{abs}:arrivals', job.queue)
end

-- Removes a job from the place where it waits or runs.
local function leave(id, job)
  pace()
  if job.state == 'waiting' then
    redis.call('ZREM', WAITING, id)
    weigh('weight', job.priority, -job.weight)
  elseif job.state == 'outside' then
    local packed = redis.call('HGET', OUTSIDE, job.after)
    local followers = packed and cmsgpack.unpack(packed) or {}
    followers[id] = nil
    if next(followers) then redis.call('HSET', OUTSIDE, job.after, cmsgpack.pack(followers))
    else redis.call('HDEL', OUTSIDE, job.after) end
    weigh('outside_weight', job.priority, -job.weight)
    redis.call('HINCRBY', QUEUE, 'outside', -1)
  elseif job.state == 'running' then
    redis.call('XACK', LEASES, GROUP, job.message)
    redis.call('XDEL', LEASES, job.message)
    weigh('running_weight', '', -job.weight)
  end
end

-- Enqueues the jobs whose other job is over. Its end only notifies: a script touches one queue, and this one may differ.
local function release()
  for _, after in ipairs(redis.call('HKEYS', OUTSIDE)) do
    local first = load(after)
    if not first or is_over(first) then
      for id in pairs(cmsgpack.unpack(redis.call('HGET', OUTSIDE, after))) do
        local job = load(id)
        if job then
          leave(id, job)
          enqueue(id, job)
          save(id, job)
        end
      end
      redis.call('HDEL', OUTSIDE, after)
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
local function forget_old(bytes_max)
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', FINISHED, '-inf', integer(now_ms()), 'LIMIT', 0, 100)) do
    forget(id)
  end
  local field = redis.call('HMGET', COUNTERS, 'bytes', 'last')
  if number(field[1]) <= bytes_max then return end
  for _, id in ipairs(redis.call('ZRANGE', EVICTABLE, 0, 199)) do
    if id ~= field[2] then forget(id) end
    if number(redis.call('HGET', COUNTERS, 'bytes')) <= bytes_max then return end
  end
end

-- Ends a job. `result` is nil if it was cancelled; `limits` are result_ttl_ms and result_bytes_max; `cacheable` says
-- whether the job's key may lead to this result.
local function finish(id, job, result, limits, cacheable)
  leave(id, job)
  job.state = result and 'done' or 'cancelled'
  redis.call('HDEL', BODIES, id)
  if result then redis.call('HSET', RESULTS, id, result) end
  local key_ttl = result and cacheable and job.key_ttl or 0
  job.key_ends = now_ms() + key_ttl
  if key_ttl == 0 then forget_key(id, job) end
  notify(id, job)
  if job.followed then redis.call('PUBLISH', '{abs}:arrivals', '*') end
  job.ended, job.size = next_place(), JOB_BYTES + job.bytes + (result and #result or 0)
  redis.call('ZADD', FINISHED, integer(now_ms() + math.max(limits.ttl, key_ttl)), id)
  if job.subscribers <= 0 then redis.call('ZADD', EVICTABLE, integer(job.ended), id) end
  redis.call('HINCRBY', COUNTERS, 'bytes', integer(job.size))
  redis.call('HSET', COUNTERS, 'last', id)
  save(id, job)
  forget_old(limits.bytes)
end

-- Cancels a job for all subscribers. A running one continues until its worker is notified.
local function cancel(id, job, limits)
  if is_over(job) then return end
  job.cancel = true
  forget_key(id, job) -- the next equal request gets a new job
  if job.state ~= 'running' then return finish(id, job, nil, limits) end
  notify(id, job)
  save(id, job)
end

-- Adds a process to those that are notified of changes of an open job.
local function subscribe(id, job, process)
  if is_over(job) or job.processes[process] then return end
  job.processes[process] = true
  save(id, job)
end
