-- queue worker reason ttl_ms secret -> whether the other workers have the same secret
local queue, worker, reason, ttl, secret = unpack(ARGV)
local stored = redis.call('GET', 'abs:secret')
if stored and stored ~= secret then return 0 end
redis.call('SET', 'abs:secret', secret, 'EX', '120')
local base, now = 'abs:workers:' .. queue, now_ms()
for _, expired in ipairs(redis.call('ZRANGEBYSCORE', base, '-inf', integer(now))) do
  redis.call('ZREM', base, expired)
  redis.call('HDEL', base .. ':reasons', expired)
end
redis.call('ZADD', base, integer(now + number(ttl)), worker)
cap_scores(base, number(ttl))
redis.call('HSET', base .. ':reasons', worker, reason)
return 1
