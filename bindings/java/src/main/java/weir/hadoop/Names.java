package weir.hadoop;

import java.io.IOException;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.IntFunction;

/** Names of users and groups, which this machine's tables give numbers. */
final class Names {
  /** Beyond so many names the memory begins anew. */
  private static final int MAX_NAMES = 10_000;
  private static final ConcurrentHashMap<Integer, String> USERS = new ConcurrentHashMap<>();
  private static final ConcurrentHashMap<Integer, String> GROUPS = new ConcurrentHashMap<>();

  private Names() {
  }

  static String user(int uid) {
    return known(USERS, uid, Native::userName);
  }

  static String group(int gid) {
    return known(GROUPS, gid, Native::groupName);
  }

  private static String known(ConcurrentHashMap<Integer, String> names, int number,
      IntFunction<String> find) {
    if (names.size() > MAX_NAMES) {
      names.clear();
    }
    return names.computeIfAbsent(number, find::apply);
  }

  /** The number of a user; -1 of no name. */
  static long userNumber(String name) throws IOException {
    return name == null || name.isEmpty() ? -1 : Native.userNumber(name);
  }

  /** The number of a group; -1 of no name. */
  static long groupNumber(String name) throws IOException {
    return name == null || name.isEmpty() ? -1 : Native.groupNumber(name);
  }
}
