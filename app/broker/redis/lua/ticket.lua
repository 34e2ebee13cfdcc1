-- queue stream consumer message id -> the job's ticket, empty if it is gone | nil if another consumer has the message
local queue, stream, consumer, message, id = unpack(ARGV)
if #redis.call('XPENDING', stream, STREAQ_GROUP, message, message, 1, consumer) == 0 then return nil end
redis.call('XCLAIM', stream, STREAQ_GROUP, consumer, '0', message, 'JUSTID')
return redis.call('GET', streaq(queue, ':task:data:' .. id)) or ''
