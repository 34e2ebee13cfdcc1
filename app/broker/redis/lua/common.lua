-- Common part of the broker's scripts: the names of keys, and the changes of a job.
--
-- key                              type    content                                    lifetime
-- abs:job:<id>                     hash    the job                                    open; then result_ttl_s, key TTL
--                                                                                     without subscribers
-- abs:job:<id>:events              stream  its events                                 as the job
-- abs:job:<id>:passing             list    ids and sizes of droppable events          as the job
-- abs:job:<id>:followers           set     jobs that wait for this one                until it ends
-- abs:job:<id>:ears                set     processes to notify of changes             as the job
-- abs:key:<sha256 of the key>      string  the id of the job of this key              open; then the key's TTL
-- abs:queue:<queue>                hash    sums of weights of waiting, outside and    for ever
--                                          running jobs; batch_.. of batch jobs only;
--                                          pace_.., its throughput;
--                                          put_on, ms that the clock has jumped ahead
-- abs:queue:<queue>:waiting        zset    waiting jobs, in order                     for ever
-- abs:queue:<queue>:outside        set     jobs that wait for others                  for ever
-- abs:queue:<queue>:running        zset    running jobs                               for ever
-- abs:pool:<name>                  set     jobs of a concurrency group                an hour
-- abs:place                        string  counter of positions in queues and in the  for ever
--                                          order of completion
-- abs:finished                     zset    finished jobs, by time of expiry           for ever, pruned by time
-- abs:finished:order               zset    the same, in order of completion           as abs:finished
-- abs:finished:sizes, :bytes       hash..  their sizes in bytes, and the sum          as abs:finished
-- abs:workers:<queue>, :reasons    zset..  workers by end of their heartbeat, reasons until their heartbeat ends
-- abs:seen:<token>                 string  a change that was made                     a minute
-- abs:secret                       string  a fingerprint of the secret in use         two minutes after the last worker
-- abs:arrivals, abs:news:<process> channels
-- streaq:abs:<queue>:queues:<priority>, :task:data:<id>, :task:retry:<id>, :index:running   streaQ's

local STREAQ_GROUP = 'workers'
local BATCH_PLACE = 2 ^ 51
local JOB_BYTES = 4096
local GIVEN_BACK = 'given-back' -- the consumer of requeued messages, which have no lease

local function now_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function job_key(id) return 'abs:job:' .. id end
local function queue_key(queue) return 'abs:queue:' .. queue end
local function streaq(queue, suffix) return 'streaq:abs:' .. queue .. suffix end
local function number(text) return tonumber(text or '0') or 0 end

local function integer(value) return value == 0 and '0' or string.format('%.0f', value) end
local function minus(text) return integer(-number(text)) end
local function decimal(value) return string.format('%.6f', value) end

-- Whether a change with this token is new: a caller that received no reply repeats it.
local function first_time(token)
  return redis.call('SET', 'abs:seen:' .. token, '1', 'NX', 'EX', '60') and true or false
end

local function is_over(state) return state == 'done' or state == 'cancelled' end

local function notify(id)
  for _, process in ipairs(redis.call('SMEMBERS', job_key(id) .. ':ears')) do
    redis.call('PUBLISH', 'abs:news:' .. process, id)
  end
end

local function subscribe(id, process)
  redis.call('SADD', job_key(id) .. ':ears', process)
end

-- Restarts the leases of a queue's messages: all, or only those with an idle time of 0, which all older ones have after
-- the clock was set back.
local function restart_leases(queue, all)
  for _, priority in ipairs({'interactive', 'batch'}) do
    local stream = streaq(queue, ':queues:' .. priority)
    -- rows of message, consumer, idle time, deliveries
    local pending = redis.pcall('XPENDING', stream, STREAQ_GROUP, '-', '+', 10000)
    for _, entry in ipairs(pending.err and {} or pending) do
      if entry[2] ~= GIVEN_BACK and (all or entry[3] == 0) then
        redis.call('XCLAIM', stream, STREAQ_GROUP, entry[2], '0', entry[1], 'JUSTID')
      end
    end
  end
end

-- Compensates a clock that jumped ahead by `ms`: no lease ends, and no earlier job gets older.
local function on_clock_jump(queue, ms)
  local base, before = queue_key(queue), now_ms() - ms
  redis.call('HINCRBY', base, 'put_on', integer(ms))
  restart_leases(queue, true)
  for _, ids in ipairs({
      redis.call('ZRANGE', base .. ':waiting', 0, -1), redis.call('ZRANGE', base .. ':running', 0, -1),
      redis.call('SMEMBERS', base .. ':outside')}) do
    for _, id in ipairs(ids) do
      local times = redis.call('HMGET', job_key(id), 'submitted', 'queued', 'ends')
      for position, name in ipairs(number(times[1]) <= before and {'submitted', 'queued', 'ends'} or {}) do
        if number(times[position]) > 0 then redis.call('HINCRBY', job_key(id), name, integer(ms)) end
      end
    end
  end
end

-- Caps scores at now + `ms`. Higher ones exist if the clock was set back.
local function cap_scores(zset, ms)
  local latest = integer(now_ms() + ms)
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', zset, '(' .. latest, '+inf')) do
    redis.call('ZADD', zset, latest, member)
  end
end

-- Throughput of a queue: the work taken while other work waited, and the time in which jobs waited while others ran.
-- Both decay exponentially; see app/broker/throughput.py. Called before each change of the waiting or running jobs.
local function pace(queue)
  local base, now = queue_key(queue), now_ms()
  local field = redis.call('HMGET', base, 'pace_at', 'pace_work', 'pace_ms', 'pace_credit')
  local since = field[1] and math.max(0, now - number(field[1])) or 0
  local waits = redis.call('EXISTS', base .. ':waiting') == 1
  local stepped = since > PACE_IDLE_MEMORY_MS -- rather a clock change than an idle queue: unknown
  local moves = waits and not stepped and redis.call('EXISTS', base .. ':running') == 1
  local decay = math.exp(-since / (moves and PACE_MEMORY_MS or PACE_IDLE_MEMORY_MS))
  local work, ms, credit = number(field[2]) * decay, number(field[3]) * decay, number(field[4]) * decay
  if moves then ms = ms + (1 - decay) * PACE_MEMORY_MS end
  redis.call('HSET', base, 'pace_at', integer(now), 'pace_work', decimal(work), 'pace_ms', decimal(ms),
    'pace_credit', decimal(credit))
  return work, ms, credit, waits
end

local function work_of(weight) return number(weight) + 1 end

-- Changes a sum of weights of a queue.
local function weigh(queue, what, priority, change)
  redis.call('HINCRBY', queue_key(queue), what, change)
  if priority == 'batch' then redis.call('HINCRBY', queue_key(queue), 'batch_' .. what, change) end
end

-- The work of the running jobs of a queue.
local function running_work(queue)
  local weight = redis.call('HGET', queue_key(queue), 'running_weight')
  return math.max(0, number(weight)) + redis.call('ZCARD', queue_key(queue) .. ':running')
end

-- Updates the average duration of a queue's jobs after a job.
local function record_run(queue, weight, ms)
  local field = redis.call('HMGET', queue_key(queue), 'pace_run_ms', 'pace_run_work')
  local work, latest = work_of(weight), field[1] and PACE_LATEST or 1
  redis.call('HSET', queue_key(queue), 'pace_run_ms', decimal(number(field[1]) + latest * (ms - number(field[1]))),
    'pace_run_work', decimal(number(field[2]) + latest * (work - number(field[2]))))
end

-- Whether a job can no longer meet its deadline; see app/broker/throughput.py.
local function cannot_meet_deadline(queue, weight, remaining, waited)
  local field = redis.call('HMGET', queue_key(queue), 'pace_run_ms', 'pace_run_work')
  if not field[1] then return false end
  local needs = number(field[1]) * math.min(1, work_of(weight) / number(field[2]))
  return remaining > 0 and remaining < math.min(waited, PACE_RUN_SHARE * needs)
end

-- Adds a job to streaQ's stream and to our waiting jobs.
local function enqueue(id)
  local job = job_key(id)
  local field = redis.call('HMGET', job, 'queue', 'priority', 'weight', 'ticket')
  local queue, priority, now = field[1], field[2], now_ms()
  local position = redis.call('INCR', 'abs:place')
  if priority == 'batch' then position = position + BATCH_PLACE end
  local taken, _, credit, waits = pace(queue)
  local running = running_work(queue)
  if not waits and taken < running then
    redis.call('HSET', queue_key(queue), 'pace_credit', decimal(math.max(credit, running)))
  end
  redis.call('SET', streaq(queue, ':task:data:' .. id), field[4])
  local stream = streaq(queue, ':queues:' .. priority)
  local message = redis.call('XADD', stream, '*', 'task_id', id, 'enqueue_time', integer(now))
  redis.call('HSET', job, 'state', 'waiting', 'queued', integer(now), 'message', message, 'place', integer(position))
  redis.call('ZADD', queue_key(queue) .. ':waiting', integer(position), id)
  weigh(queue, 'weight', priority, field[3])
  redis.call('PUBLISH', 'abs:arrivals', queue)
end

-- Removes a job from the waiting or running jobs.
local function leave_queue(id, queue, weight)
  local base, priority = queue_key(queue), redis.call('HGET', job_key(id), 'priority')
  pace(queue)
  if redis.call('ZREM', base .. ':waiting', id) == 1 then
    weigh(queue, 'weight', priority, minus(weight))
  elseif redis.call('SREM', base .. ':outside', id) == 1 then
    weigh(queue, 'outside_weight', priority, minus(weight))
  end
  if redis.call('ZREM', base .. ':running', id) == 1 then weigh(queue, 'running_weight', '', minus(weight)) end
end

-- Removes a job from streaQ's stream.
local function drop_message(id, queue, priority, message)
  if message then
    local stream = streaq(queue, ':queues:' .. priority)
    redis.call('XACK', stream, STREAQ_GROUP, message)
    redis.call('XDEL', stream, message)
  end
  redis.call('DEL', streaq(queue, ':task:data:' .. id), streaq(queue, ':task:retry:' .. id))
  redis.call('SREM', streaq(queue, ':index:running'), id)
end

local function forget_key(id, key)
  if redis.call('GET', 'abs:key:' .. key) == id then redis.call('DEL', 'abs:key:' .. key) end
end

-- Sets the lifetime of a finished job. With a TTL, for a job without subscribers, it may be evicted earlier.
local function set_ttl(id, ttl)
  local job = job_key(id)
  for _, suffix in ipairs({'', ':events', ':passing', ':ears'}) do
    if ttl then redis.call('PEXPIRE', job .. suffix, integer(ttl)) else redis.call('PERSIST', job .. suffix) end
  end
end

local function forget(id)
  local job = job_key(id)
  local key = redis.call('HGET', job, 'key')
  if key then forget_key(id, key) end
  redis.call('DEL', job, job .. ':events', job .. ':passing', job .. ':ears')
  redis.call('DECRBY', 'abs:finished:bytes', redis.call('HGET', 'abs:finished:sizes', id) or '0')
  redis.call('HDEL', 'abs:finished:sizes', id)
  redis.call('ZREM', 'abs:finished', id)
  redis.call('ZREM', 'abs:finished:order', id)
end

-- Deletes expired jobs; then the oldest finished jobs without subscribers, until the others fit. The latest one stays
-- whatever its size, because a notified process has yet to read it.
local function forget_old(bytes_max)
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', 'abs:finished', '-inf', integer(now_ms()), 'LIMIT', 0, 100)) do
    forget(id)
  end
  if number(redis.call('GET', 'abs:finished:bytes')) <= bytes_max then return end
  local before_last = math.min(199, redis.call('ZCARD', 'abs:finished:order') - 2)
  if before_last < 0 then return end
  for _, id in ipairs(redis.call('ZRANGE', 'abs:finished:order', 0, integer(before_last))) do
    if number(redis.call('HGET', job_key(id), 'shares')) <= 0 then forget(id) end
    if number(redis.call('GET', 'abs:finished:bytes')) <= bytes_max then return end
  end
end

-- Ends a job. `result` is nil if it was cancelled; `limits` are result_ttl_ms and result_bytes_max; `cacheable` says
-- whether the job's key may lead to this result.
local function finish(id, result, limits, cacheable)
  local job = job_key(id)
  local field = redis.call('HMGET', job, 'queue', 'priority', 'weight', 'message', 'key', 'remember', 'bytes',
    'shares', 'detached')
  local queue, key, remember = field[1], field[5], number(field[6])
  leave_queue(id, queue, field[3])
  drop_message(id, queue, field[2], field[4])
  redis.call('HSET', job, 'state', result and 'done' or 'cancelled')
  if result then redis.call('HSET', job, 'result', result) end
  redis.call('HDEL', job, 'body', 'ticket', 'message')
  if result and cacheable and remember > 0 and redis.call('GET', 'abs:key:' .. key) == id then
    redis.call('PEXPIRE', 'abs:key:' .. key, integer(remember))
  else
    forget_key(id, key)
    remember = 0
  end
  notify(id)
  for _, follower in ipairs(redis.call('SMEMBERS', job .. ':followers')) do
    local waits = redis.call('HMGET', job_key(follower), 'queue', 'weight', 'state')
    if waits[3] == 'outside' then
      leave_queue(follower, waits[1], waits[2])
      enqueue(follower)
    end
  end
  redis.call('DEL', job .. ':followers')
  local ttl = math.max(limits.ttl, remember)
  if number(field[8]) <= 0 and field[9] ~= '1' then set_ttl(id, ttl) end
  local size = JOB_BYTES + number(field[7]) + (result and #result or 0)
  redis.call('ZADD', 'abs:finished', integer(now_ms() + ttl), id)
  redis.call('ZADD', 'abs:finished:order', integer(redis.call('INCR', 'abs:place')), id)
  redis.call('HSET', 'abs:finished:sizes', id, integer(size))
  redis.call('INCRBY', 'abs:finished:bytes', integer(size))
  forget_old(limits.bytes)
end

-- Cancels a job for all subscribers. A running one continues until its worker is notified.
local function cancel(id, limits)
  local field = redis.call('HMGET', job_key(id), 'state', 'key')
  if not field[1] or is_over(field[1]) then return end
  redis.call('HSET', job_key(id), 'called_off', '1')
  forget_key(id, field[2]) -- the next equal request gets a new job
  if field[1] == 'running' then notify(id) else finish(id, nil, limits) end
end
