-- id fence number passing data lasting_max passing_bytes_max -> 1 kept | 0 ignored | -1 another has taken the job
local id, fence, count, passing, data = unpack(ARGV, 1, 5)
local lasting_max, passing_bytes_max = number(ARGV[6]), number(ARGV[7])
local job = job_key(id)
local field = redis.call('HMGET', job, 'state', 'fence', 'lasting', 'passing')
if field[1] ~= 'running' or field[2] ~= fence then return is_over(field[1]) and 0 or -1 end
if passing == '0' and number(field[3]) >= lasting_max then return 0 end
local event = fence .. '-' .. count
local added = redis.pcall('XADD', job .. ':events', event, 'data', data)
if type(added) == 'table' and added.err then return 0 end -- told already, by one who saw no reply
redis.call('HSET', job, 'last', event)
redis.call('HINCRBY', job, 'bytes', #data)
if passing == '0' then
  redis.call('HINCRBY', job, 'lasting', 1)
else
  local held = redis.call('HINCRBY', job, 'passing', #data)
  redis.call('RPUSH', job .. ':passing', event .. ' ' .. #data)
  while held > passing_bytes_max and held > #data do
    local oldest, size = string.match(redis.call('LPOP', job .. ':passing'), '^(%S+) (%d+)$')
    redis.call('XDEL', job .. ':events', oldest)
    held = redis.call('HINCRBY', job, 'passing', minus(size))
    redis.call('HINCRBY', job, 'bytes', minus(size))
  end
end
tell(id)
return 1
