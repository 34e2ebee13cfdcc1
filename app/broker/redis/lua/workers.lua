-- queue -> {worker, reason}...
local base, workers = 'abs:workers:' .. ARGV[1], {}
for _, worker in ipairs(redis.call('ZRANGEBYSCORE', base, '(' .. integer(now_ms()), '+inf')) do
  workers[#workers + 1] = {worker, redis.call('HGET', base .. ':reasons', worker) or ''}
end
return workers
