-- consumer process count lease_ms attempts_max expected_ms step_ms message... -> now_ms {delivery...}
--   delivery: id message fence attempt waited_ms age_ms verdict body; the verdict is '', 'lost' or 'late'
-- Leases up to `count` jobs to a consumer that holds the leases of these messages. First those whose lease has ended,
-- then waiting ones: each moves to the stream and is read from it at once.
-- The server's clock may jump. A worker sends the time it expects; if the server is ahead by more than step_ms, the
-- script shifts all leases and times by the difference. Expected and returned times exclude earlier jumps, so that only
-- one worker compensates each jump.
local consumer, process, count, lease, attempts_max = ARGV[1], ARGV[2], number(ARGV[3]), ARGV[4], number(ARGV[5])
local now, jump, deliveries, held = now_ms(), number(redis.call('HGET', QUEUE, 'clock_jump')), {}, {}
for index = 8, #ARGV do held[ARGV[index]] = true end

-- Compensates a clock that jumped ahead by `ms`: no lease ends, and no earlier job gets older.
local function on_clock_jump(ms)
  redis.call('HINCRBY', QUEUE, 'clock_jump', integer(ms))
  restart_leases(true)
  local ids = redis.call('ZRANGE', WAITING, 0, -1)
  for _, entry in ipairs(redis.call('XRANGE', LEASES, '-', '+')) do ids[#ids + 1] = entry[2][2] end
  for _, packed in ipairs(redis.call('HVALS', OUTSIDE)) do
    for id in pairs(cmsgpack.unpack(packed)) do ids[#ids + 1] = id end
  end
  for _, id in ipairs(ids) do
    local job = load(id)
    if job and job.submitted <= now - ms then
      for _, name in ipairs({'submitted', 'queued', 'ends'}) do job[name] = job[name] and job[name] + ms end
      save(id, job)
    end
  end
end

local ahead = ARGV[6] == '' and 0 or now - jump - number(ARGV[6])
if ahead > number(ARGV[7]) then
  on_clock_jump(ahead)
  jump = jump + ahead
end

local function deliver(id, job)
  local function since(time) return integer(math.max(0, now - time)) end -- negative after the clock was set back
  deliveries[#deliveries + 1] = {id, job.message, integer(job.fence), integer(job.attempt), since(job.queued),
    since(job.submitted), job.verdict, redis.call('HGET', BODIES, id) or ''}
  count = count - 1
end

-- Begins another lease. A job that is cancelled or has used its attempts is leased only to be finished.
local function lease_again(id, job, verdict)
  job.verdict = (job.cancel or job.attempt >= attempts_max) and 'lost' or verdict
  if job.verdict == '' then job.attempt = job.attempt + 1 end
  job.fence = job.fence + 1
  job.processes[process] = true
  save(id, job)
  deliver(id, job)
end

redis.pcall('XGROUP', 'CREATE', LEASES, GROUP, '0', 'MKSTREAM')
release()

-- Leases of this consumer that it does not know: the reply to an earlier call was lost.
for _, entry in ipairs(redis.call('XPENDING', LEASES, GROUP, '-', '+', 100, consumer)) do
  local message = entry[1]
  local found = not held[message] and redis.call('XRANGE', LEASES, message, message)[1]
  local job = found and load(found[2][2])
  if job and job.message == message then deliver(found[2][2], job) end
end

-- Leases that have ended. XAUTOCLAIM looks at some messages a call, so it is called until it has seen all.
local cursor = '0-0'
local ended = #redis.call('XPENDING', LEASES, GROUP, 'IDLE', lease, '-', '+', 1) > 0
while ended and count > 0 do
  local reply = redis.call('XAUTOCLAIM', LEASES, GROUP, consumer, lease, cursor, 'COUNT', integer(count))
  for _, entry in ipairs(reply[2]) do
    local message, id = entry[1], entry[2][2]
    local job = load(id)
    if not job or job.message ~= message or job.state ~= 'running' then
      redis.call('XACK', LEASES, GROUP, message)
      redis.call('XDEL', LEASES, message)
    elseif not held[message] then -- otherwise this consumer slept, and its lease goes on
      lease_again(id, job, '')
    end
  end
  cursor = reply[1]
  if cursor == '0-0' then break end
end

while count > 0 do
  local id = redis.call('ZRANGE', WAITING, 0, 0)[1]
  if not id then break end
  local job = load(id)
  if not job then
    redis.call('ZREM', WAITING, id)
  else
    leave(id, job)
    local others = redis.call('EXISTS', WAITING) == 1
    local run = redis.call('HMGET', QUEUE, 'pace_run_ms', 'pace_run_work')
    local late = false -- whether it can no longer meet its deadline; see app/broker/throughput.py
    if others and job.ends and run[1] then
      local left, needs = job.ends - now, number(run[1]) * math.min(1, work_of(job.weight) / number(run[2]))
      late = left > 0 and left < math.min(math.max(0, now - job.submitted), PACE_RUN_SHARE * needs)
    end
    job.state, job.paced = 'running', others and not late
    job.message = redis.call('XADD', LEASES, '*', 'job', id)
    redis.call('XREADGROUP', 'GROUP', GROUP, consumer, 'COUNT', '1', 'STREAMS', LEASES, '>')
    weigh('running_weight', '', job.weight)
    if job.paced then
      local work = number(redis.call('HGET', QUEUE, 'pace_work')) + work_of(job.weight)
      redis.call('HSET', QUEUE, 'pace_work', decimal(work))
    end
    lease_again(id, job, late and 'late' or '')
  end
end
return {now - jump, deliveries}
