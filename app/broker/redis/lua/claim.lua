-- consumer process count latest renew take_over message... -> now waiting {message...} {delivery...}
--   delivery: id message fence attempt waited_ms age_ms verdict body; the verdict is '', 'lost' or 'late'
local consumer, process, count, deliveries = ARGV[1], ARGV[2], number(ARGV[3]), {}

if ARGV[4] ~= '' and now - ARGV[4] > LEASE_MS / 2 then
  jump = redis.call('HINCRBY', COUNTERS, 'clock_jump', integer(now - ARGV[4]))
  now = clock - jump
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
  job.fence, job.worker = job.fence + 1, process
  save(id, job)
  deliver(id, job)
end

redis.pcall('XGROUP', 'CREATE', LEASES, GROUP, '0', 'MKSTREAM')
release()

if number(redis.call('HGET', QUEUE, 'clock_jump')) ~= number(jump) then
  redis.call('HSET', QUEUE, 'clock_jump', integer(jump))
  for _, entry in ipairs(redis.call('XPENDING', LEASES, GROUP, '-', '+', 10000)) do -- message, consumer, ..
    redis.call('XCLAIM', LEASES, GROUP, entry[2], '0', entry[1], 'JUSTID')
  end
end

local known, held = {}, {}
for index = 7, #ARGV do known[ARGV[index]] = true end
for index, entry in ipairs(redis.call('XPENDING', LEASES, GROUP, '-', '+', 1000, consumer)) do
  local message = entry[1]
  held[index] = message
  if not known[message] then -- the reply to an earlier call was lost
    local found = redis.call('XRANGE', LEASES, message, message)[1]
    local job = found and load(found[2][2])
    if job and job.message == message then deliver(found[2][2], job) end
  elseif ARGV[5] == '1' then
    redis.call('XCLAIM', LEASES, GROUP, consumer, '0', message, 'JUSTID')
  end
end

-- XAUTOCLAIM looks at some messages a call, so it is called until it has seen all.
local cursor = ARGV[6] == '1' and '0-0'
while cursor and count > 0 do
  local reply = redis.call('XAUTOCLAIM', LEASES, GROUP, consumer, LEASE_MS, cursor, 'COUNT', integer(count))
  for _, entry in ipairs(reply[2]) do
    local message, id = entry[1], entry[2][2]
    local job = load(id)
    -- A consumer that slept goes on with the leases that it knows.
    if job and job.message == message and not known[message] then lease(id, job, '') end
  end
  cursor = reply[1] ~= '0-0' and reply[1]
end

for _, id in ipairs(redis.call('ZRANGE', WAITING, '-inf', '+inf', 'BYSCORE', 'LIMIT', 0, math.max(0, count))) do
  local job = load(id)
  local rate, others, late = pace(), redis.call('ZCARD', WAITING) > 1, false
  if others and job.ends and rate.run_work > 0 then -- it may be too late for its deadline; see app/broker/throughput.py
    local left, needs = job.ends - now, rate.run_ms * math.min(1, work_of(job) / rate.run_work)
    late = left > 0 and left < math.min(now - job.submitted, RUN_TIME_SHARE * needs)
  end
  job.paced = others and not late
  if job.paced then rate.work = rate.work + work_of(job) end
  leave(id, job)
  job.state = 'running'
  job.message = redis.call('XADD', LEASES, '*', 'job', id)
  redis.call('XREADGROUP', 'GROUP', GROUP, consumer, 'COUNT', '1', 'STREAMS', LEASES, '>')
  weigh(job, 1)
  lease(id, job, late and 'late' or '')
end
return {now, redis.call('ZCARD', WAITING), held, deliveries}
