-- id -> nil | state owner queue submitted_ms attempt ahead kind
local job = load(ARGV[1])
if not job then return nil end
local state, ahead = job.state, 0
if state == 'waiting' then
  ahead = redis.call('ZRANK', WAITING, ARGV[1]) or 0
elseif state == 'outside' then
  state = 'waiting'
  ahead = redis.call('ZCOUNT', WAITING, '-inf', '(' .. integer(job.place))
elseif state == 'running' and job.cancel then
  state = 'cancelled'
end
return {state, job.owner, job.queue, integer(job.submitted), integer(job.attempt), integer(ahead), job.kind}
