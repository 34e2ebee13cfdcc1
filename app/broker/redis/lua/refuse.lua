-- id queue priority message result result_ttl_ms result_bytes_max
-- Handles a message that streaQ cannot read: the job of the message ends with this result, a stale message is removed.
local id, queue, priority, message = unpack(ARGV, 1, 4)
local field = redis.call('HMGET', job_key(id), 'state', 'message')
if field[1] and not is_over(field[1]) and field[2] == message then
  finish(id, ARGV[5], {ttl = number(ARGV[6]), bytes = number(ARGV[7])})
elseif field[1] and not is_over(field[1]) then
  redis.call('XACK', streaq(queue, ':queues:' .. priority), STREAQ_GROUP, message)
  redis.call('XDEL', streaq(queue, ':queues:' .. priority), message)
else
  drop_message(id, queue, priority, message)
end
