-- stream consumer message... -> the messages that others have taken over
local lost = {}
for index = 3, #ARGV do
  local message = ARGV[index]
  if #redis.call('XPENDING', ARGV[1], STREAQ_GROUP, message, message, 1, ARGV[2]) > 0 then
    redis.call('XCLAIM', ARGV[1], STREAQ_GROUP, ARGV[2], '0', message, 'JUSTID')
  else
    lost[#lost + 1] = message
  end
end
return lost
