"""Work on what callers sent, in processes that can be killed: one fork server, one short-lived process for each job."""
