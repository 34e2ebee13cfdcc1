-- id token process tries_max lost late result_ttl_ms result_bytes_max -> nil | body waited_ms attempt fence age_ms
local id, token, process, tries_max, lost, late = unpack(ARGV, 1, 6)
local limits = {ttl = number(ARGV[7]), bytes = number(ARGV[8])}
local job = job_key(id)
local field = redis.call('HMGET', job, 'state', 'queue', 'weight', 'attempt', 'fence', 'called_off', 'token', 'queued',
  'body', 'submitted', 'ends')
local state, queue = field[1], field[2]
if not state or is_over(state) then return nil end
local function since(time) return math.max(0, now_ms() - number(time)) end -- negative after the clock was set back
local waited, age = since(field[8]), since(field[10])
if state == 'running' and field[7] == token then -- repeated, because the reply was lost
  return {field[9], integer(waited), field[4], field[5], integer(age)}
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
local others = redis.call('EXISTS', queue_key(queue) .. ':waiting') == 1
if others and field[11] ~= '' and cannot_meet_deadline(queue, field[3], number(field[11]) - now_ms(), age) then
  finish(id, late, limits)
  return nil
end
redis.call('ZADD', queue_key(queue) .. ':running', integer(now_ms()), id)
weigh(queue, 'running_weight', '', field[3])
local counts_for_pace = state == 'waiting' and others
if counts_for_pace then
  local work = number(redis.call('HGET', queue_key(queue), 'pace_work')) + work_of(field[3])
  redis.call('HSET', queue_key(queue), 'pace_work', decimal(work))
end
redis.call('HSET', job, 'state', 'running', 'attempt', integer(attempt), 'fence', integer(fence), 'token', token,
  'paced', counts_for_pace and '1' or '0')
subscribe(id, process)
return {field[9], integer(waited), integer(attempt), integer(fence), integer(age)}
