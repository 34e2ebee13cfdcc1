-- id fence result cacheable ran_ms; ran_ms is -1 for a job that did not run
local id, job, result, ran = ARGV[1], load(ARGV[1]), ARGV[3], number(ARGV[5])
if not job or job.state ~= 'running' or job.fence ~= number(ARGV[2]) then return end
if job.cancel then
  result = nil
elseif ran >= 0 then -- updates the average duration of the queue's jobs
  local rate = pace()
  local latest = rate.run_work > 0 and LATEST_RUN_WEIGHT or 1
  rate.run_ms = rate.run_ms + latest * (ran - rate.run_ms)
  rate.run_work = rate.run_work + latest * (work_of(job) - rate.run_work)
end
finish(id, job, result, ARGV[4] == '1')
