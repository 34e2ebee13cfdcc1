-- ttl_ms -> {worker, reason}...
local workers, found = {}, redis.call('HGETALL', WORKERS)
for index = 1, #found, 2 do
  local ends, reason = unpack(cmsgpack.unpack(found[index + 1]))
  -- Later ends were written while the clock was ahead.
  if now < ends and ends <= now + ARGV[1] then workers[#workers + 1] = {found[index], reason}
  else redis.call('HDEL', WORKERS, found[index]) end
end
return workers
