-- id fence result_ttl_ms result_bytes_max
local id, fence = ARGV[1], ARGV[2]
local job = job_key(id)
local field = redis.call('HMGET', job, 'state', 'fence', 'called_off', 'queue', 'priority', 'message', 'weight',
  'place', 'attempt', 'paced')
if field[1] ~= 'running' or field[2] ~= fence then return end
if field[3] then return finish(id, nil, {ttl = number(ARGV[3]), bytes = number(ARGV[4])}) end
local base = queue_key(field[4])
local taken = pace(field[4])
taken = taken - (field[10] == '1' and work_of(field[7]) or 0)
redis.call('HSET', base, 'pace_work', decimal(math.max(0, taken)))
leave_queue(id, field[4], field[7])
redis.call('ZADD', base .. ':waiting', field[8], id) -- at its earlier position
weigh(field[4], 'weight', field[5], field[7])
redis.call('HSET', job, 'state', 'waiting', 'attempt', integer(number(field[9]) - 1), 'token', '')
redis.call('HINCRBY', job, 'fence', 1)
redis.call('SREM', streaq(field[4], ':index:running'), id)
-- streaQ delivers a message that was idle for a day before all others.
redis.call('XCLAIM', streaq(field[4], ':queues:' .. field[5]), STREAQ_GROUP, GIVEN_BACK, '0', field[6],
  'IDLE', '86400000', 'JUSTID')
redis.call('PUBLISH', 'abs:arrivals', field[4])
