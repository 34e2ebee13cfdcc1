-- queue consumer count idle_ms expected_ms step_ms -> now_ms {{stream, {id, task_id, enqueue_time}...}...}
-- Where it is later by step_ms than is expected the clock was put on. What is expected, and said, is the time less all
-- that it was put on by before, so that of those who find it out one alone makes up for it.
-- First what was idle for so long, then what is new, of each priority in turn. Not XAUTOCLAIM: it looks at the first few
-- messages only, which may all be in good hands.
local queue, consumer, count, idle = ARGV[1], ARGV[2], number(ARGV[3]), ARGV[4]
local now, put_on = now_ms(), number(redis.call('HGET', queue_key(queue), 'put_on'))
local ahead = ARGV[5] == '' and 0 or now - put_on - number(ARGV[5])
if ahead > number(ARGV[6]) then
  was_put_on(queue, ahead)
  put_on = put_on + ahead
end

local found = {}
for _, priority in ipairs({'interactive', 'batch'}) do
  local stream, entries = streaq(queue, ':queues:' .. priority), {}
  local function add(list)
    for _, entry in ipairs(list) do
      local field = {}
      for place = 1, #entry[2], 2 do field[entry[2][place]] = entry[2][place + 1] end
      entries[#entries + 1] = {entry[1], field['task_id'], field['enqueue_time']}
    end
    count = count - #list
  end
  if count > 0 then
    local ids = {}
    for _, pending in ipairs(redis.call('XPENDING', stream, STREAQ_GROUP, 'IDLE', idle, '-', '+', whole(count))) do
      ids[#ids + 1] = pending[1]
    end
    if #ids > 0 then add(redis.call('XCLAIM', stream, STREAQ_GROUP, consumer, idle, unpack(ids))) end
  end
  if count > 0 then
    local read = redis.call('XREADGROUP', 'GROUP', STREAQ_GROUP, consumer, 'COUNT', whole(count), 'STREAMS', stream, '>')
    if read then add(read[1][2]) end
  end
  if #entries > 0 then found[#found + 1] = {stream, entries} end
end
return {now - put_on, found}
