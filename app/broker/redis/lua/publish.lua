-- KEYS: .., events, droppable. ARGV: id fence number droppable data
-- -> 1 stored | 0 ignored | -1 leased by another worker
local id, job, data, events, dropped = ARGV[1], load(ARGV[1]), ARGV[5], KEYS[18], KEYS[19]
local durable = ARGV[4] == '0'
if not job or job.state ~= 'running' or job.fence ~= number(ARGV[2]) then return job and is_over(job) and 0 or -1 end
if durable and job.durable >= EVENTS_MAX then return 0 end
local event = ARGV[2] .. '-' .. ARGV[3]
if event == job.last then return 0 end -- published before, but the reply was lost
redis.call('XADD', events, event, 'data', data)
job.last, job.bytes = event, job.bytes + #data
if durable then
  job.durable = job.durable + 1
else
  job.droppable = job.droppable + #data
  redis.call('RPUSH', dropped, event .. ' ' .. #data)
  while job.droppable > DROPPABLE_BYTES_MAX and job.droppable > #data do
    local oldest, size = string.match(redis.call('LPOP', dropped), '^(%S+) (%d+)$')
    redis.call('XDEL', events, oldest)
    job.droppable, job.bytes = job.droppable - size, job.bytes - size
  end
end
save(id, job)
notify('events:' .. id, job)
return 1
