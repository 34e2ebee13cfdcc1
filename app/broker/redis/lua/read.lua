-- KEYS: .., events. ARGV: id process after count -> nil | over {{id, data}...}. Subscribes the process to an open job.
local job, after, events = load(ARGV[1]), ARGV[3], {}
if not job then return nil end
subscribe(ARGV[1], job, ARGV[2])
local known = after ~= '' and #redis.call('XREVRANGE', KEYS[18], '+', after, 'COUNT', 1) > 0
for _, entry in ipairs(redis.call('XRANGE', KEYS[18], known and '(' .. after or '-', '+', 'COUNT', ARGV[4])) do
  events[#events + 1] = {entry[1], entry[2][2]}
end
return {is_over(job) and 1 or 0, events}
