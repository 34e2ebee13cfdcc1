-- KEYS: .., workers, reasons -> {worker, reason}...
local workers = {}
for _, worker in ipairs(redis.call('ZRANGEBYSCORE', KEYS[13], '(' .. integer(now_ms()), '+inf')) do
  workers[#workers + 1] = {worker, redis.call('HGET', KEYS[14], worker) or ''}
end
return workers
