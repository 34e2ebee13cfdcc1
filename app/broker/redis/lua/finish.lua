-- id fence result cacheable ran_ms result_ttl_ms result_bytes_max; ran_ms is -1 for a job that did not run
local id, job, result, ran = ARGV[1], load(ARGV[1]), ARGV[3], number(ARGV[5])
if not job or job.state ~= 'running' or job.fence ~= number(ARGV[2]) then return end
if job.cancel then
  result = nil
elseif ran >= 0 then -- updates the average duration of the queue's jobs
  local field = redis.call('HMGET', QUEUE, 'pace_run_ms', 'pace_run_work')
  local latest = field[1] and PACE_LATEST or 1
  redis.call('HSET', QUEUE, 'pace_run_ms', decimal(number(field[1]) + latest * (ran - number(field[1]))),
    'pace_run_work', decimal(number(field[2]) + latest * (work_of(job.weight) - number(field[2]))))
end
finish(id, job, result, {ttl = number(ARGV[6]), bytes = number(ARGV[7])}, ARGV[4] == '1')
