-- id token process tries_max lost result_ttl_ms result_bytes_max -> nil | body waited_ms attempt fence age_ms
local id, token, process, tries_max, lost = unpack(ARGV, 1, 5)
local limits = {ttl = number(ARGV[6]), bytes = number(ARGV[7])}
local job = job_key(id)
local field = redis.call('HMGET', job, 'state', 'queue', 'weight', 'attempt', 'fence', 'called_off', 'token', 'queued',
  'body', 'submitted')
local state, queue = field[1], field[2]
if not state or is_over(state) then return nil end
local waited, age = now_ms() - number(field[8]), now_ms() - number(field[10])
if state == 'running' and field[7] == token then -- asked again by one who saw no reply
  return {field[9], whole(waited), field[4], field[5], whole(age)}
end
if field[6] then
  finish(id, nil, limits)
  return nil
end
local attempt, fence = number(field[4]) + 1, number(field[5]) + 1
if attempt > number(tries_max) then
  finish(id, lost, limits)
  return nil
end
leave_queue(id, queue, field[3])
redis.call('ZADD', queue_key(queue) .. ':running', whole(now_ms()), id)
redis.call('HSET', job, 'state', 'running', 'attempt', whole(attempt), 'fence', whole(fence), 'token', token)
listen(id, process)
return {field[9], whole(waited), whole(attempt), whole(fence), whole(age)}
