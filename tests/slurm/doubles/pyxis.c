/* pyxis 0.20, as far as `container: pyxis` uses it: a SPANK plugin with its options. pyxis.py checks what is asked. */

#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <slurm/spank.h>

SPANK_PLUGIN(pyxis, 1);

#define OPTIONS 11
static char *given[OPTIONS];

static int take(int place, const char *argument, int remote)
{
	(void)remote;
	free(given[place]);
	given[place] = strdup(argument && *argument ? argument : "yes");
	return given[place] ? 0 : -1;
}

static struct spank_option options[OPTIONS] = {
	{"container-image", "IMAGE", "[pyxis] image", 1, 0, take},
	{"container-name", "NAME", "[pyxis] name", 1, 1, take},
	{"container-mounts", "MOUNTS", "[pyxis] mounts", 1, 2, take},
	{"container-workdir", "PATH", "[pyxis] working directory", 1, 3, take},
	{"container-env", "NAMES", "[pyxis] variables", 1, 4, take},
	{"container-readonly", NULL, "[pyxis] read-only", 0, 5, take},
	{"container-writable", NULL, "[pyxis] writable", 0, 6, take},
	{"no-container-mount-home", NULL, "[pyxis] no home", 0, 7, take},
	{"no-container-remap-root", NULL, "[pyxis] no root", 0, 8, take},
	{"container-entrypoint", NULL, "[pyxis] entrypoint", 0, 9, take},
	{"no-container-entrypoint", NULL, "[pyxis] no entrypoint", 0, 10, take},
};

int slurm_spank_init(spank_t sp, int count, char **arguments)
{
	(void)count, (void)arguments;
	if (spank_context() == S_CTX_SLURMD || spank_context() == S_CTX_JOB_SCRIPT)
		return 0;
	for (int place = 0; place < OPTIONS; place++)
		if (spank_option_register(sp, &options[place]) != ESPANK_SUCCESS)
			return -1;
	return 0;
}

#define NO_ENTRYPOINT 3

/* Runs the command that plugstack.conf names, with every option as NAME=VALUE; 0, or NO_ENTRYPOINT if the container was
   once started without its entrypoint, if it finds nothing wrong. */
static int checked(spank_t sp, int count, char **arguments)
{
	char visible[4096] = "", *words[OPTIONS + 16], text[OPTIONS][4200];
	int length = 0, status = -1;

	spank_getenv(sp, "NVIDIA_VISIBLE_DEVICES", visible, sizeof(visible));
	for (int place = 0; place < count && length < 12; place++)
		words[length++] = arguments[place];
	for (int place = 0; place < OPTIONS; place++)
		if (given[place]) {
			snprintf(text[place], sizeof(text[place]), "%s=%s", options[place].name, given[place]);
			words[length++] = text[place];
		}
	words[length] = NULL;
	pid_t child = fork();
	if (child == 0) {
		setenv("NVIDIA_VISIBLE_DEVICES", visible, 1);
		execv(words[0], words);
		_exit(127);
	}
	if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status))
		return -1;
	return WEXITSTATUS(status);
}

/* Mounts the folders of SOURCE:PLACE:ro that follow the two file systems in memory, below /mnt; 0 if all are there. */
static int with_mounts(void)
{
	char *rest = strdup(given[2]), *word, *source, *place;

	for (int number = 0; (word = strsep(&rest, ",")); number++) {
		source = strsep(&word, ":");
		place = strsep(&word, ":");
		if (number >= 2 && (mkdir(place, 0755) != 0 || mount(source, place, NULL, MS_BIND, NULL) != 0 ||
				    mount(NULL, place, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL) != 0))
			return -1;
	}
	return 0;
}

int slurm_spank_task_init(spank_t sp, int count, char **arguments)
{
	const char *denied[] = {"LANG", "LANGUAGE", "LC_ALL"};

	if (!given[0])
		return 0;
	int found = checked(sp, count, arguments);
	if (found != 0 && found != NO_ENTRYPOINT)
		return -1;
	for (int place = 0; place < 3; place++)
		spank_unsetenv(sp, denied[place]);
	spank_setenv(sp, "PATH", "/usr/local/bin:/usr/bin:/bin", 1);
	spank_setenv(sp, "FROM_THE_IMAGE", "yes", 1);
	spank_setenv(sp, "ENTRYPOINT", found == 0 ? "ran" : "left_out", 1);
	spank_setenv(sp, "RANK", "0", 1); /* as for images of PyTorch */
	if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
	    mount("tmpfs", "/mnt", "tmpfs", 0, NULL) != 0 || with_mounts() != 0 ||
	    mount("tmpfs", "/tmp", "tmpfs", 0, NULL) != 0 || chdir("/tmp") != 0 ||
	    mount(NULL, "/", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL) != 0) {
		slurm_error("pyxis: the container cannot be started");
		return -1;
	}
	return 0;
}
