-- queue -> {worker, reason}...
local base, found = 'abs:workers:' .. ARGV[1], {}
for _, worker in ipairs(redis.call('ZRANGEBYSCORE', base, '(' .. whole(now_ms()), '+inf')) do
  found[#found + 1] = {worker, redis.call('HGET', base .. ':reasons', worker) or ''}
end
return found
