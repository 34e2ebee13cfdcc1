-- id -> the job's queue
local job = load(ARGV[1])
return job and job.queue
