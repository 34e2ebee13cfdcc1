-- id fence
local id, job = ARGV[1], load(ARGV[1])
if not job or job.state ~= 'running' or job.fence ~= number(ARGV[2]) then return end
if job.cancel then return finish(id, job, nil) end
if job.paced then pace().work = math.max(0, pace().work - work_of(job)) end
leave(id, job)
job.attempt, job.fence = job.attempt - (job.verdict == '' and 1 or 0), job.fence + 1
wait(id, job)
save(id, job)
