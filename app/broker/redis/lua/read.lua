-- id process last count -> nil | over {{id, data}...}. Subscribes the process to an open job.
local job = job_key(ARGV[1])
local field = redis.call('HMGET', job, 'state', 'last')
if not field[1] then return nil end
if not is_over(field[1]) then subscribe(ARGV[1], ARGV[2]) end
local from = '-'
local take, count = string.match(ARGV[3], '^(%d+)-(%d+)$')
local last_take, last_count = string.match(field[2] or '', '^(%d+)-(%d+)$')
if take and last_take then
  take, count, last_take, last_count = number(take), number(count), number(last_take), number(last_count)
  if take < last_take or (take == last_take and count <= last_count) then from = '(' .. ARGV[3] end
end
local events = {}
for _, entry in ipairs(redis.call('XRANGE', job .. ':events', from, '+', 'COUNT', ARGV[4])) do
  events[#events + 1] = {entry[1], entry[2][2]}
end
return {is_over(field[1]) and 1 or 0, events}
