-- Deletes old jobs and consumers.
forget_old()
local consumers = redis.pcall('XINFO', 'CONSUMERS', LEASES, GROUP)
for _, consumer in ipairs(consumers.err and {} or consumers) do -- name, pending, idle, each with its value
  if consumer[4] == 0 and consumer[6] > 3600000 then
    redis.call('XGROUP', 'DELCONSUMER', LEASES, GROUP, consumer[2])
  end
end
