-- owner: fleet
-- Until when the host of an agent is expected to reboot and be back, epoch milliseconds. NULL for one that does not reboot.
ALTER TABLE agents ADD COLUMN reboot_until BIGINT;
CREATE INDEX agents_reboots ON agents (reboot_until) WHERE reboot_until IS NOT NULL;
