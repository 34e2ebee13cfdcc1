-- id process -> nil | state cancel fence result. Subscribes the process to an open job.
local job = load(ARGV[1])
if not job then return nil end
subscribe(ARGV[1], job, ARGV[2])
return {job.state, job.cancel and 1 or 0, integer(job.fence), redis.call('HGET', RESULTS, ARGV[1]) or ''}
