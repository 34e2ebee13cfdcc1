-- id -> nil | state owner queue submitted_ms attempt ahead kind
local field = redis.call('HMGET', job_key(ARGV[1]), 'state', 'owner', 'queue', 'submitted', 'attempt', 'kind',
  'called_off', 'priority')
local state, base = field[1], queue_key(field[3] or '')
if not state then return nil end
local ahead = 0
if state == 'waiting' then
  ahead = redis.call('ZRANK', base .. ':waiting', ARGV[1]) or 0
elseif state == 'outside' then
  state = 'waiting'
  local last = field[8] == 'batch' and '+inf' or '(' .. integer(BATCH_PLACE)
  ahead = redis.call('ZCOUNT', base .. ':waiting', '-inf', last)
elseif state == 'running' and field[7] then
  state = 'cancelled'
end
return {state, field[2], field[3], field[4], field[5], integer(ahead), field[6]}
