-- queue consumer count idle_ms expected_ms step_ms -> now_ms {{stream, {id, task_id, enqueue_time}...}...}
-- The server's clock may jump. A worker sends the time it expects; if the server is ahead by more than step_ms, the
-- script shifts all leases and times by the difference. Expected and returned times exclude earlier jumps, so that only
-- one worker compensates each jump.
-- Claims idle messages first, then new ones, of each priority in turn. XAUTOCLAIM scans only the first few messages,
-- which may all have live workers.
local queue, consumer, count, idle = ARGV[1], ARGV[2], number(ARGV[3]), ARGV[4]
local now, clock_jump = now_ms(), number(redis.call('HGET', queue_key(queue), 'put_on'))
local ahead = ARGV[5] == '' and 0 or now - clock_jump - number(ARGV[5])
if ahead > number(ARGV[6]) then
  on_clock_jump(queue, ahead)
  clock_jump = clock_jump + ahead
end

local streams = {}
for _, priority in ipairs({'interactive', 'batch'}) do
  local stream, entries = streaq(queue, ':queues:' .. priority), {}
  local function add(list)
    for _, entry in ipairs(list) do
      local field = {}
      for index = 1, #entry[2], 2 do field[entry[2][index]] = entry[2][index + 1] end
      entries[#entries + 1] = {entry[1], field['task_id'], field['enqueue_time']}
    end
    count = count - #list
  end
  if count > 0 then
    local ids = {}
    for _, pending in ipairs(redis.call('XPENDING', stream, STREAQ_GROUP, 'IDLE', idle, '-', '+', integer(count))) do
      ids[#ids + 1] = pending[1]
    end
    if #ids > 0 then add(redis.call('XCLAIM', stream, STREAQ_GROUP, consumer, idle, unpack(ids))) end
  end
  if count > 0 then
    local read = redis.call(
      'XREADGROUP', 'GROUP', STREAQ_GROUP, consumer, 'COUNT', integer(count), 'STREAMS', stream, '>')
    if read then add(read[1][2]) end
  end
  if #entries > 0 then streams[#streams + 1] = {stream, entries} end
end
return {now - clock_jump, streams}
