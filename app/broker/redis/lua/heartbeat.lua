-- KEYS: .., workers, reasons, secret. ARGV: worker reason ttl_ms secret -> whether other workers have the same secret
local workers, reasons, ttl, now = KEYS[13], KEYS[14], number(ARGV[3]), now_ms()
local stored = redis.call('GET', KEYS[15])
if stored and stored ~= ARGV[4] then return 0 end
redis.call('SET', KEYS[15], ARGV[4], 'EX', '120')
for _, expired in ipairs(redis.call('ZRANGEBYSCORE', workers, '-inf', integer(now))) do
  redis.call('ZREM', workers, expired)
  redis.call('HDEL', reasons, expired)
end
redis.call('ZADD', workers, integer(now + ttl), ARGV[1])
cap_scores(workers, ttl)
redis.call('HSET', reasons, ARGV[1], ARGV[2])
return 1
