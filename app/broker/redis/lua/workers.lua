-- KEYS: .., workers. ARGV: ttl_ms -> {worker, reason}...
local workers, found = {}, redis.call('HGETALL', KEYS[16])
for index = 1, #found, 2 do
  local ends, reason = unpack(cmsgpack.unpack(found[index + 1]))
  -- Later ends exist if the clock was set back.
  if now < ends and ends <= now + ARGV[1] then workers[#workers + 1] = {found[index], reason}
  else redis.call('HDEL', KEYS[16], found[index]) end
end
return workers
