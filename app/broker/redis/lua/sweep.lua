-- queue result_bytes_max -> number of jobs that were missing in streaQ's queue and are requeued. Removes old consumers.
local queue, requeued = ARGV[1], 0
local base = queue_key(queue)
forget_old(number(ARGV[2]))
restart_leases(queue, false)
for _, suffix in ipairs({':waiting', ':running'}) do
  for _, id in ipairs(redis.call('ZRANGE', base .. suffix, 0, 199)) do
    local field = redis.call('HMGET', job_key(id), 'state', 'weight')
    if not field[1] or is_over(field[1]) then
      redis.call('ZREM', base .. suffix, id)
    elseif redis.call('EXISTS', streaq(queue, ':task:data:' .. id)) == 0 then
      leave_queue(id, queue, field[2])
      enqueue(id)
      requeued = requeued + 1
    end
  end
end
for _, priority in ipairs({'interactive', 'batch'}) do
  local stream = streaq(queue, ':queues:' .. priority)
  local consumers = redis.pcall('XINFO', 'CONSUMERS', stream, STREAQ_GROUP)
  for _, consumer in ipairs(consumers.err and {} or consumers) do -- name, pending, idle, each with its value
    local expired = consumer[4] == 0 and consumer[6] > 3600000
    if expired then redis.call('XGROUP', 'DELCONSUMER', stream, STREAQ_GROUP, consumer[2]) end
  end
end
return requeued
