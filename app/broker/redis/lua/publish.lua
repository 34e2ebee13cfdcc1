-- id fence number droppable data durable_max droppable_bytes_max -> 1 stored | 0 ignored | -1 taken by another worker
local id, fence, count, droppable, data = unpack(ARGV, 1, 5)
local lasting_max, passing_bytes_max = number(ARGV[6]), number(ARGV[7])
local job = job_key(id)
local field = redis.call('HMGET', job, 'state', 'fence', 'lasting', 'passing')
if field[1] ~= 'running' or field[2] ~= fence then return is_over(field[1]) and 0 or -1 end
if droppable == '0' and number(field[3]) >= lasting_max then return 0 end
local event = fence .. '-' .. count
local added = redis.pcall('XADD', job .. ':events', event, 'data', data)
if type(added) == 'table' and added.err then return 0 end -- published before, but the reply was lost
redis.call('HSET', job, 'last', event)
redis.call('HINCRBY', job, 'bytes', #data)
if droppable == '0' then
  redis.call('HINCRBY', job, 'lasting', 1)
else
  local droppable_bytes = redis.call('HINCRBY', job, 'passing', #data)
  redis.call('RPUSH', job .. ':passing', event .. ' ' .. #data)
  while droppable_bytes > passing_bytes_max and droppable_bytes > #data do
    local oldest, size = string.match(redis.call('LPOP', job .. ':passing'), '^(%S+) (%d+)$')
    redis.call('XDEL', job .. ':events', oldest)
    droppable_bytes = redis.call('HINCRBY', job, 'passing', minus(size))
    redis.call('HINCRBY', job, 'bytes', minus(size))
  end
end
notify(id)
return 1
