-- queue worker reason ttl_ms secret -> whether the others have the same secret
local queue, worker, reason, ttl, secret = unpack(ARGV)
local theirs = redis.call('GET', 'abs:secret')
if theirs and theirs ~= secret then return 0 end
redis.call('SET', 'abs:secret', secret, 'EX', '120')
local base, now = 'abs:workers:' .. queue, now_ms()
for _, gone in ipairs(redis.call('ZRANGEBYSCORE', base, '-inf', whole(now))) do
  redis.call('ZREM', base, gone)
  redis.call('HDEL', base .. ':reasons', gone)
end
redis.call('ZADD', base, whole(now + number(ttl)), worker)
no_later(base, number(ttl))
redis.call('HSET', base .. ':reasons', worker, reason)
return 1
