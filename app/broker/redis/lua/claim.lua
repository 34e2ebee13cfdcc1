-- consumer process count earliest latest renew take_over message... -> now_ms {lost message...} {delivery...}
--   delivery: id message fence attempt waited_ms age_ms verdict body; the verdict is '', 'lost' or 'late'
-- Leases up to `count` jobs to a consumer that holds the leases of these messages, and renews those. First come jobs
-- whose lease has ended, then waiting ones: each moves to the stream and is read from it at once.
-- The server's clock may jump. A worker sends the times between which it expects the clock, if it knows them. If the
-- clock is more than half a lease away, the script counts the difference as a jump and restarts all leases.
local consumer, process, count = ARGV[1], ARGV[2], number(ARGV[3])
local now, deliveries, held, lost, unknown = now_ms(), {}, {}, {}, {}

local jump = ARGV[4] == '' and 0 or math.min(0, now - ARGV[4]) + math.max(0, now - ARGV[5])
if math.abs(jump) > LEASE_MS / 2 then
  redis.call('HINCRBY', COUNTERS, 'clock_jump', integer(jump))
  now = now - jump
end

local function deliver(id, job)
  local function since(time) return integer(math.max(0, now - time)) end
  deliveries[#deliveries + 1] = {id, job.message, integer(job.fence), integer(job.attempt), since(job.queued),
    since(job.submitted), job.verdict, redis.call('HGET', BODIES, id) or ''}
  count = count - 1
end

-- Begins another lease. A job that is cancelled or has used its attempts is leased only to be finished.
local function lease(id, job, verdict)
  job.verdict = (job.cancel or job.attempt >= ATTEMPTS_MAX) and 'lost' or verdict
  if job.verdict == '' then job.attempt = job.attempt + 1 end
  job.fence = job.fence + 1
  job.processes[process] = true
  save(id, job)
  deliver(id, job)
end

redis.pcall('XGROUP', 'CREATE', LEASES, GROUP, '0', 'MKSTREAM')
release()

local clock_jump = redis.call('HGET', COUNTERS, 'clock_jump') or '0'
if (redis.call('HGET', QUEUE, 'clock_jump') or '0') ~= clock_jump then
  redis.call('HSET', QUEUE, 'clock_jump', clock_jump)
  for _, entry in ipairs(redis.call('XPENDING', LEASES, GROUP, '-', '+', 10000)) do -- message, consumer, ..
    redis.call('XCLAIM', LEASES, GROUP, entry[2], '0', entry[1], 'JUSTID')
  end
end

for _, entry in ipairs(redis.call('XPENDING', LEASES, GROUP, '-', '+', 1000, consumer)) do unknown[entry[1]] = true end
for index = 8, #ARGV do
  local message = ARGV[index]
  if not unknown[message] then lost[#lost + 1] = message
  elseif ARGV[6] == '1' then redis.call('XCLAIM', LEASES, GROUP, consumer, '0', message, 'JUSTID') end
  held[message], unknown[message] = true, nil
end
for message in pairs(unknown) do -- leases that it does not know: the reply to an earlier call was lost
  local found = redis.call('XRANGE', LEASES, message, message)[1]
  local job = found and load(found[2][2])
  if job and job.message == message then deliver(found[2][2], job) end
end

-- XAUTOCLAIM looks at some messages a call, so it is called until it has seen all.
local cursor = ARGV[7] == '1' and '0-0'
while cursor and count > 0 do
  local reply = redis.call('XAUTOCLAIM', LEASES, GROUP, consumer, LEASE_MS, cursor, 'COUNT', integer(count))
  for _, entry in ipairs(reply[2]) do
    local message, id = entry[1], entry[2][2]
    local job = load(id)
    if not job or job.message ~= message or job.state ~= 'running' then
      redis.call('XACK', LEASES, GROUP, message)
      redis.call('XDEL', LEASES, message)
    elseif not held[message] then -- otherwise this consumer slept, and its lease goes on
      lease(id, job, '')
    end
  end
  cursor = reply[1] ~= '0-0' and reply[1]
end

while count > 0 do
  local id = redis.call('ZRANGE', WAITING, 0, 0)[1]
  if not id then break end
  local job = load(id)
  leave(id, job)
  local rate, others = pace()
  local late = false -- whether it can no longer meet its deadline; see app/broker/throughput.py
  if others and job.ends and rate.run_work > 0 then
    local left, needs = job.ends - now, rate.run_ms * math.min(1, work_of(job) / rate.run_work)
    late = left > 0 and left < math.min(now - job.submitted, RUN_TIME_SHARE * needs)
  end
  job.state, job.paced = 'running', others and not late
  if job.paced then rate.work = rate.work + work_of(job) end
  save_pace(rate)
  job.message = redis.call('XADD', LEASES, '*', 'job', id)
  redis.call('XREADGROUP', 'GROUP', GROUP, consumer, 'COUNT', '1', 'STREAMS', LEASES, '>')
  weigh(job, 1)
  lease(id, job, late and 'late' or '')
end
return {now, lost, deliveries}
