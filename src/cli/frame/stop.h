/* Signals that ask long work to stop. Inside src/cli. */
#ifndef EK_CLI_STOP_H
#define EK_CLI_STOP_H

/* Calls stop for SIGINT, SIGTERM and SIGHUP, with the flags of sigaction; one that is ignored, as under nohup, stays
 * so. */
void ek_cli_on_stop(void (*stop)(int number), int flags);

#endif
