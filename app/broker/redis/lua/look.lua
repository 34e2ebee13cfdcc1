-- id process -> nil | state queue owner kind submitted_ms attempt ahead cancel key digest fence result
-- Subscribes the process, if there is one, to an open job. The result is empty without one.
local id, job = ARGV[1], load(ARGV[1])
if not job then return nil end
local ahead, result = 0, ''
if job.state == 'waiting' or job.state == 'outside' then
  ahead = redis.call('ZCOUNT', WAITING, '-inf', '(' .. integer(job.place))
end
if ARGV[2] ~= '' then
  subscribe(id, job, ARGV[2])
  result = redis.call('HGET', RESULTS, id) or ''
end
local submitted = job.submitted + number(redis.call('HGET', COUNTERS, 'clock_jump'))
return {job.state, job.queue, job.owner, job.kind, integer(submitted), integer(job.attempt), ahead,
  job.cancel and 1 or 0, job.key, job.digest, integer(job.fence), result}
