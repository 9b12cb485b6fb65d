# Buries a server when its owner has ended, however that happened: the owner holds the other end of the input.
# Each line tells the process that serves now, an empty one that none does. The home is the only argument.
pid=
while read -r line; do pid=$line; done

state() { read -r _ _ state _ 2>/dev/null </proc/"$1"/stat || state=X; }
if [ -n "$pid" ]; then
  # Stopped before its children are counted: PostgreSQL's are sessions of their own, so no group holds them all.
  until kill -STOP "$pid" 2>/dev/null; state "$pid"; case $state in [TtZX]) true ;; *) false ;; esac; do :; done
  children=
  for stat in /proc/[0-9]*/stat; do
    read -r child _ _ parent _ 2>/dev/null <"$stat" && [ "$parent" = "$pid" ] && children="$children $child"
  done
  kill -KILL $children "$pid" 2>/dev/null
fi
# A killed PostgreSQL leaves a segment of System V shared memory behind, and names it here.
segment=$(sed -n '7s/.* //p' "$1/data/postmaster.pid" 2>/dev/null) && [ -n "$segment" ] && ipcrm -m "$segment" 2>/dev/null
rm -rf -- "$1" || { sleep 1; rm -rf -- "$1"; }
