-- id fence
local id, job = ARGV[1], load(ARGV[1])
if not job or job.state ~= 'running' or job.fence ~= number(ARGV[2]) then return end
if job.cancel then return finish(id, job, nil) end
leave(id, job)
local rate = pace()
if job.paced then rate.work = math.max(0, rate.work - work_of(job)) end
save_pace(rate)
job.attempt, job.fence = job.attempt - (job.verdict == '' and 1 or 0), job.fence + 1
wait(id, job)
save(id, job)
