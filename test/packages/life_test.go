//go:build packages

package packages

import "testing"

// TestJobEndsOnlyWithWhatItBelongsTo ends services and logins in which a job runs under a lock. The job must have the
// fate that systemd gives it without mutexctl, and the lock must share it.
func TestJobEndsOnlyWithWhatItBelongsTo(t *testing.T) {
	m := boot(t)
	m.etcd(t, "")
	m.run(t, `dpkg -i /packages/new/mutexctl_*.deb; useradd --create-home --shell /bin/bash sam
		echo UserStopDelaySec=1s >> /etc/systemd/logind.conf; systemctl restart systemd-logind
		cat > /usr/local/bin/job <<'END'
#!/bin/sh
mutexctl run a -- sh -c 'echo $$ > /tmp/pid; cat /proc/self/cgroup > /tmp/group; sleep 600'
true
END
		chmod 755 /usr/local/bin/job`)
	const (
		service = `systemd-run --quiet --collect --unit=job `
		cron    = service + `-p KillMode=process `
		login   = `systemd-run --quiet --collect --unit=login su -l sam -c '
			if [ -e /tmp/nohup ]; then nohup job > /dev/null & fi; until [ -e /tmp/out ]; do sleep 0.1; done'
			until systemctl is-active user@$(id -u sam); do sleep 0.1; done; `
		asSam   = `systemd-run --quiet --collect --wait --pipe --uid=sam -E XDG_RUNTIME_DIR=/run/user/$(id -u sam) `
		stop    = `systemctl stop job`
		logout  = `touch /tmp/out; while systemctl is-active login; do sleep 0.1; done; `
		forget  = `while systemctl is-active user@$(id -u sam); do sleep 0.1; done; ` // at the last logout
		restore = logout + `systemctl kill job 'session-*.scope'; systemctl stop job 'mutexctl-*'
			loginctl disable-linger sam; loginctl terminate-user sam
			` + forget + `rm -f /tmp/out /tmp/nohup /tmp/group /tmp/pid`
		state = `fate=$(kill -0 $(cat /tmp/pid) && echo lives || echo ended)
			echo $fate, $(mutexctl list 2>&1 | grep -o '. lock.* held')`
		lives = "lives, 1 lock held"
		ended = "ended, 0 locks held"
	)
	for _, c := range []struct{ about, start, group, end, want string }{
		{"service", service + "job", ".scope/command", stop, ended},
		{"oneshot", service + "-p Type=oneshot --no-block job", ".scope/command", stop, ended},
		{"crash", service + "job", ".scope/command", "kill -9 $(systemctl show -P MainPID job)", ended},
		{"Delegate", service + "-p Delegate=yes job", "/job.service/mutexctl-", stop, ended},
		{"ProtectControlGroups", service + "-p ProtectControlGroups=yes job", "/job.service\n", stop, ended},
		{"User", service + "--uid=sam job", "/job.service\n", stop, ended},
		{"User and Delegate", service + "--uid=sam -p Delegate=yes job", "/job.service/mutexctl-", stop, ended},
		{"service of a user", login + asSam + "systemd-run --user --unit=job job", "/user@",
			asSam + "systemctl --user stop job", ended},
		{"cron", cron + "job", ".scope/command", stop, lives},
		{"cron of a user", login + cron + "--uid=sam job", "/job.service\n", logout + forget, lives},
		{"cron of a lingering user", "loginctl enable-linger sam; " + login + cron + "--uid=sam job", "/user@", logout +
			stop,
			lives},
		{"login", "touch /tmp/nohup; " + login, "/session-", logout, lives},
	} {
		t.Run(c.about, func(t *testing.T) {
			m.run(t, c.start)
			m.prints(t, "cat /tmp/group", c.group)
			m.prints(t, state, lives)
			m.run(t, c.end)
			m.prints(t, state, c.want)
			_ = m.command("set +e; " + restore).Run()
			m.prints(t, "mutexctl list 2>&1", "0 locks held")
		})
	}
}
