-- consumer message... -> the messages that others have leased
local lost = {}
for index = 2, #ARGV do
  local message = ARGV[index]
  if #redis.call('XPENDING', LEASES, GROUP, message, message, 1, ARGV[1]) > 0 then
    redis.call('XCLAIM', LEASES, GROUP, ARGV[1], '0', message, 'JUSTID')
  else
    lost[#lost + 1] = message
  end
end
return lost
