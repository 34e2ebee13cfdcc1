-- KEYS: .., events. ARGV: id process last count -> nil | over {{id, data}...}. Subscribes the process to an open job.
local job = load(ARGV[1])
if not job then return nil end
subscribe(ARGV[1], job, ARGV[2])
local from = '-'
local lease, count = string.match(ARGV[3], '^(%d+)-(%d+)$')
local last_lease, last_count = string.match(job.last or '', '^(%d+)-(%d+)$')
if lease and last_lease then
  lease, count, last_lease, last_count = number(lease), number(count), number(last_lease), number(last_count)
  if lease < last_lease or (lease == last_lease and count <= last_count) then from = '(' .. ARGV[3] end
end
local events = {}
for _, entry in ipairs(redis.call('XRANGE', KEYS[13], from, '+', 'COUNT', ARGV[4])) do
  events[#events + 1] = {entry[1], entry[2][2]}
end
return {is_over(job) and 1 or 0, events}
