-- queue result_bytes_max -> how many jobs were put into streaQ's queue again that had dropped out of it. Workers long gone are forgotten.
local queue, again = ARGV[1], 0
local base = queue_key(queue)
forget_old(number(ARGV[2]))
lease_anew(queue, false)
for _, rest in ipairs({':waiting', ':running'}) do
  for _, id in ipairs(redis.call('ZRANGE', base .. rest, 0, 199)) do
    local field = redis.call('HMGET', job_key(id), 'state', 'weight')
    if not field[1] or is_over(field[1]) then
      redis.call('ZREM', base .. rest, id)
    elseif redis.call('EXISTS', streaq(queue, ':task:data:' .. id)) == 0 then
      leave_queue(id, queue, field[2])
      enqueue(id)
      again = again + 1
    end
  end
end
for _, priority in ipairs({'interactive', 'batch'}) do
  local stream = streaq(queue, ':queues:' .. priority)
  local known = redis.pcall('XINFO', 'CONSUMERS', stream, STREAQ_GROUP)
  for _, consumer in ipairs(known.err and {} or known) do -- name, pending, idle, each with its value
    local gone = consumer[4] == 0 and consumer[6] > 3600000
    if gone then redis.call('XGROUP', 'DELCONSUMER', stream, STREAQ_GROUP, consumer[2]) end
  end
end
return again
