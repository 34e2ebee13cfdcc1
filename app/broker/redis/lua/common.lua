-- What all scripts of the broker share: the names of keys, and what is done to a job whatever the reason.
--
-- key                              type    holds                                      lives
-- abs:job:<id>                     hash    the job                                    open; then result_ttl_s or remember_s,
--                                                                                     by TTL once nobody has a share in it
-- abs:job:<id>:events              stream  its events                                 as the job
-- abs:job:<id>:passing             list    ids and sizes of events that only pass     as the job
-- abs:job:<id>:followers           set     jobs that wait for it                      until it is over
-- abs:job:<id>:ears                set     processes that want news of it             as the job
-- abs:key:<sha256 of the key>      string  the id of the job that the key leads to    open; then remember_s
-- abs:queue:<queue>                hash    the sums of weights of those that wait,    for ever
--                                          outside, or run; batch_.. of the batch ones
--                                          among them; pace_.., how fast it moves;
--                                          put_on, ms that the clock was put on by
-- abs:queue:<queue>:waiting        zset    jobs that wait, in order                   for ever
-- abs:queue:<queue>:outside        set     jobs that wait for others                  for ever
-- abs:queue:<queue>:running        zset    jobs that were taken                       for ever
-- abs:pool:<name>                  set     jobs of a pool, when it was last looked at an hour
-- abs:place                        string  counts the places given out, in queues and  for ever
--                                          in the order of ends
-- abs:finished                     zset    finished jobs, by when they are forgotten  for ever, pruned by time
-- abs:finished:order               zset    the same, in the order of their ends       as abs:finished
-- abs:finished:sizes, :bytes       hash..  what they take, each and all               as abs:finished
-- abs:workers:<queue>, :reasons    zset..  who said that he lives                     until he says no more
-- abs:seen:<token>                 string  a change that must not be made twice       a minute
-- abs:secret                       string  a fingerprint of the secret in use         two minutes after the last worker
-- abs:arrivals, abs:news:<process> channels
-- streaq:abs:<queue>:queues:<priority>, :task:data:<id>, :task:retry:<id>, :index:running   streaQ's

local STREAQ_GROUP = 'workers'
local BATCH_PLACE = 2 ^ 51
local JOB_BYTES = 4096
local GIVEN_BACK = 'given-back' -- the consumer whose messages no lease is on

local function now_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function job_key(id) return 'abs:job:' .. id end
local function queue_key(queue) return 'abs:queue:' .. queue end
local function streaq(queue, rest) return 'streaq:abs:' .. queue .. rest end
local function number(text) return tonumber(text or '0') or 0 end

local function whole(value) return value == 0 and '0' or string.format('%.0f', value) end
local function minus(text) return whole(-number(text)) end
local function decimal(value) return string.format('%.6f', value) end

-- Whether a change with this token is made for the first time: a caller who saw no reply asks again.
local function first_time(token)
  return redis.call('SET', 'abs:seen:' .. token, '1', 'NX', 'EX', '60') and true or false
end

local function is_over(state) return state == 'done' or state == 'cancelled' end

local function tell(id)
  for _, process in ipairs(redis.call('SMEMBERS', job_key(id) .. ':ears')) do
    redis.call('PUBLISH', 'abs:news:' .. process, id)
  end
end

local function listen(id, process)
  redis.call('SADD', job_key(id) .. ':ears', process)
end

-- Leases on a queue's messages count from now on: all, or those alone that seem to begin this very moment, for a clock
-- that was put back says so of all that began before.
local function lease_anew(queue, all)
  for _, priority in ipairs({'interactive', 'batch'}) do
    local stream = streaq(queue, ':queues:' .. priority)
    local pending = redis.pcall('XPENDING', stream, STREAQ_GROUP, '-', '+', 10000) -- message, consumer, idle, deliveries
    for _, one in ipairs(pending.err and {} or pending) do
      if one[2] ~= GIVEN_BACK and (all or one[3] == 0) then
        redis.call('XCLAIM', stream, STREAQ_GROUP, one[2], '0', one[1], 'JUSTID')
      end
    end
  end
end

-- The clock was put on by so many ms. That ends no lease, and makes no job older that came before.
local function was_put_on(queue, ms)
  local base, before = queue_key(queue), now_ms() - ms
  redis.call('HINCRBY', base, 'put_on', whole(ms))
  lease_anew(queue, true)
  for _, ids in ipairs({redis.call('ZRANGE', base .. ':waiting', 0, -1), redis.call('ZRANGE', base .. ':running', 0, -1),
      redis.call('SMEMBERS', base .. ':outside')}) do
    for _, id in ipairs(ids) do
      local times = redis.call('HMGET', job_key(id), 'submitted', 'queued', 'ends')
      for place, name in ipairs(number(times[1]) <= before and {'submitted', 'queued', 'ends'} or {}) do
        if number(times[place]) > 0 then redis.call('HINCRBY', job_key(id), name, whole(ms)) end
      end
    end
  end
end

-- What lasts until a time that is further off than `ms`, for the clock was put back, lasts so long from now.
local function no_later(zset, ms)
  local latest = whole(now_ms() + ms)
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', zset, '(' .. latest, '+inf')) do
    redis.call('ZADD', zset, latest, member)
  end
end

-- How fast a queue moves: the work that was taken while more of it waited, and for how many ms something waited while
-- something ran. Both fade; app/pace.py says how, and why. To be asked before a job comes to those that wait or run, or
-- leaves them.
local function pace(queue)
  local base, now = queue_key(queue), now_ms()
  local field = redis.call('HMGET', base, 'pace_at', 'pace_work', 'pace_ms', 'pace_credit')
  local since = field[1] and math.max(0, now - number(field[1])) or 0
  local waits = redis.call('EXISTS', base .. ':waiting') == 1
  local stepped = since > PACE_IDLE_MEMORY_MS -- more likely the clock than the queue, and then nothing is known of it
  local moves = waits and not stepped and redis.call('EXISTS', base .. ':running') == 1
  local kept = math.exp(-since / (moves and PACE_MEMORY_MS or PACE_IDLE_MEMORY_MS))
  local work, ms, credit = number(field[2]) * kept, number(field[3]) * kept, number(field[4]) * kept
  if moves then ms = ms + (1 - kept) * PACE_MEMORY_MS end
  redis.call('HSET', base, 'pace_at', whole(now), 'pace_work', decimal(work), 'pace_ms', decimal(ms),
    'pace_credit', decimal(credit))
  return work, ms, credit, waits
end

local function work_of(weight) return number(weight) + 1 end

-- Change a sum of weights of a queue.
local function weigh(queue, what, priority, change)
  redis.call('HINCRBY', queue_key(queue), what, change)
  if priority == 'batch' then redis.call('HINCRBY', queue_key(queue), 'batch_' .. what, change) end
end

-- The work of the jobs of a queue that run.
local function running_work(queue)
  local weight = redis.call('HGET', queue_key(queue), 'running_weight')
  return math.max(0, number(weight)) + redis.call('ZCARD', queue_key(queue) .. ':running')
end

-- A job of a queue was done: how long such a job takes of late.
local function ran(queue, weight, ms)
  local field = redis.call('HMGET', queue_key(queue), 'pace_run_ms', 'pace_run_work')
  local work, latest = work_of(weight), field[1] and PACE_LATEST or 1
  redis.call('HSET', queue_key(queue), 'pace_run_ms', decimal(number(field[1]) + latest * (ms - number(field[1]))),
    'pace_run_work', decimal(number(field[2]) + latest * (work - number(field[2]))))
end

-- Whether a job that has waited so long cannot be done in what it has left: app/pace.py says how that is judged.
local function hopeless(queue, weight, left, waited)
  local field = redis.call('HMGET', queue_key(queue), 'pace_run_ms', 'pace_run_work')
  if not field[1] then return false end
  local needs = number(field[1]) * math.min(1, work_of(weight) / number(field[2]))
  return left > 0 and left < math.min(waited, PACE_RUN_SHARE * needs)
end

-- Let a job wait to be taken: for streaQ to deliver, for us to count.
local function enqueue(id)
  local job = job_key(id)
  local field = redis.call('HMGET', job, 'queue', 'priority', 'weight', 'ticket')
  local queue, priority, now = field[1], field[2], now_ms()
  local place = redis.call('INCR', 'abs:place')
  if priority == 'batch' then place = place + BATCH_PLACE end
  local taken, _, credit, waits = pace(queue)
  local running = running_work(queue)
  if not waits and taken < running then
    redis.call('HSET', queue_key(queue), 'pace_credit', decimal(math.max(credit, running)))
  end
  redis.call('SET', streaq(queue, ':task:data:' .. id), field[4])
  local stream = streaq(queue, ':queues:' .. priority)
  local message = redis.call('XADD', stream, '*', 'task_id', id, 'enqueue_time', whole(now))
  redis.call('HSET', job, 'state', 'waiting', 'queued', whole(now), 'message', message, 'place', whole(place))
  redis.call('ZADD', queue_key(queue) .. ':waiting', whole(place), id)
  weigh(queue, 'weight', priority, field[3])
  redis.call('PUBLISH', 'abs:arrivals', queue)
end

-- A job is no longer among those that wait, or that run.
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

-- streaQ is to deliver this job no more.
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

-- A finished job lives as long as it was promised. Where nobody has a share in it, it may go when memory is short.
local function set_ttl(id, ttl)
  local job = job_key(id)
  for _, rest in ipairs({'', ':events', ':passing', ':ears'}) do
    if ttl then redis.call('PEXPIRE', job .. rest, whole(ttl)) else redis.call('PERSIST', job .. rest) end
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

-- Forget what is past its time; then, the first to end first, what nobody has a share in, until the rest fits. The last
-- to end stays whatever its size: whoever was told of it is still to read it.
local function forget_old(bytes_max)
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', 'abs:finished', '-inf', whole(now_ms()), 'LIMIT', 0, 100)) do
    forget(id)
  end
  if number(redis.call('GET', 'abs:finished:bytes')) <= bytes_max then return end
  local before_last = math.min(199, redis.call('ZCARD', 'abs:finished:order') - 2)
  if before_last < 0 then return end
  for _, id in ipairs(redis.call('ZRANGE', 'abs:finished:order', 0, whole(before_last))) do
    if number(redis.call('HGET', job_key(id), 'shares')) <= 0 then forget(id) end
    if number(redis.call('GET', 'abs:finished:bytes')) <= bytes_max then return end
  end
end

-- The end of a job. `result` is nil where it was called off; `limits` are result_ttl_ms and result_bytes_max; `lasts`
-- says whether the job's key may lead to this result.
local function finish(id, result, limits, lasts)
  local job = job_key(id)
  local field = redis.call('HMGET', job, 'queue', 'priority', 'weight', 'message', 'key', 'remember', 'bytes',
    'shares', 'detached')
  local queue, key, remember = field[1], field[5], number(field[6])
  leave_queue(id, queue, field[3])
  drop_message(id, queue, field[2], field[4])
  redis.call('HSET', job, 'state', result and 'done' or 'cancelled')
  if result then redis.call('HSET', job, 'result', result) end
  redis.call('HDEL', job, 'body', 'ticket', 'message')
  if result and lasts and remember > 0 and redis.call('GET', 'abs:key:' .. key) == id then
    redis.call('PEXPIRE', 'abs:key:' .. key, whole(remember))
  else
    forget_key(id, key)
    remember = 0
  end
  tell(id)
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
  redis.call('ZADD', 'abs:finished', whole(now_ms() + ttl), id)
  redis.call('ZADD', 'abs:finished:order', whole(redis.call('INCR', 'abs:place')), id)
  redis.call('HSET', 'abs:finished:sizes', id, whole(size))
  redis.call('INCRBY', 'abs:finished:bytes', whole(size))
  forget_old(limits.bytes)
end

-- Call a job off, for all. One that runs goes on until its worker has heard of it.
local function cancel(id, limits)
  local field = redis.call('HMGET', job_key(id), 'state', 'key')
  if not field[1] or is_over(field[1]) then return end
  redis.call('HSET', job_key(id), 'called_off', '1')
  forget_key(id, field[2]) -- whoever asks for the same from now on gets a job of its own
  if field[1] == 'running' then tell(id) else finish(id, nil, limits) end
end
